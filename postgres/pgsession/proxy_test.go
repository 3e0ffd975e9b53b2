package pgsession_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// A proxy is the network between a store and its database.
type proxy struct {
	server string // the socket
	ln     net.Listener

	mu      sync.Mutex
	clients []net.Conn
	dropped bool          // drop was called
	lose    int           // this many replies are lost, each with its connection
	stall   chan struct{} // closed when the network works
}

// network puts a proxy before a database.
func network(t *testing.T, p place) (*proxy, place) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "proxy")
	must(t, err)
	const socket = ".s.PGSQL.5432"
	_, host, _ := strings.Cut(p.url, "host=")
	n := &proxy{server: filepath.Join(host, socket), stall: make(chan struct{})}
	close(n.stall)
	n.ln, err = net.Listen("unix", filepath.Join(dir, socket))
	must(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := n.ln.Accept()
			if err != nil {
				return
			}
			n.mu.Lock()
			n.clients = append(n.clients, client)
			n.mu.Unlock()
			serving.Go(func() { n.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = n.ln.Close()
		serving.Wait() // the stores were closed before
		_ = os.RemoveAll(dir)
	})
	return n, place{strings.Replace(p.url, host, dir, 1) + "&pool_max_conns=1", p.schema}
}

func (n *proxy) serve(client net.Conn) {
	server, err := net.Dial("unix", n.server)
	if err != nil {
		_ = client.Close()
		return
	}
	var pumps sync.WaitGroup
	pump := func(to, from net.Conn, pass func([]byte) error) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			k, err := from.Read(buf)
			if err == nil {
				err = pass(buf[:k])
			}
			if err == nil {
				_, err = to.Write(buf[:k])
			}
			if err != nil {
				return
			}
		}
	}
	pumps.Go(func() { pump(server, client, n.request) })
	pumps.Go(func() { pump(client, server, n.reply) })
	pumps.Wait()
}

// request loses requests to cancel a statement after a call of drop.
func (n *proxy) request(data []byte) error {
	_ = n.wait(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dropped && len(data) == 16 && string(data[4:8]) == "\x04\xd2\x16\x2e" {
		return io.ErrClosedPipe
	}
	return nil
}

func (n *proxy) wait([]byte) error {
	n.mu.Lock()
	stall := n.stall
	n.mu.Unlock()
	<-stall
	return nil
}

// reply drops a reply that the server has sent completely, up to ReadyForQuery.
func (n *proxy) reply(data []byte) error {
	_ = n.wait(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	if ready := len(data) >= 6 && string(data[len(data)-6:len(data)-1]) == "Z\x00\x00\x00\x05"; n.lose > 0 && ready {
		n.lose--
		return io.ErrClosedPipe
	}
	return nil
}

func (n *proxy) loseReply() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = 1
}

func (n *proxy) lost(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lose > 0 {
		t.Error("no reply was lost")
	}
}

// drop closes all connections. The server notices it only after it has executed the current statement.
func (n *proxy) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.clients {
		_ = c.Close()
	}
	n.clients, n.dropped = nil, true
}

// TestCommitAfterRetry loses the connection while an append waits in the database for a row lock. The database executes
// the append when the retry waits too. The record is stored once, and the append succeeds.
func TestCommitAfterRetry(t *testing.T) {
	place := newPlace(t)
	n, p := network(t, place)
	p.url = strings.Replace(p.url, "pool_max_conns=1", "pool_max_conns=2", 1) // the lost connection is closed later
	store := open(t, p, pgsession.Options{Claim: time.Hour})
	log := openLog(t, store, "x")
	appendTo(t, log, record(1))
	db, err := pgx.Connect(t.Context(), place.url)
	must(t, err)
	defer db.Close(t.Context())
	tx, err := db.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM "+p.schema+".session FOR UPDATE")
	must(t, err)
	waitFor := func(want int) {
		t.Helper()
		for range 2000 {
			var waiting int
			_, err := tx.Exec(t.Context(), "SELECT pg_stat_clear_snapshot()")
			must(t, err)
			must(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&waiting))
			if waiting == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("not %d statements wait for a lock", want)
	}
	appended := make(chan error, 1)
	go func() { appended <- log.Append(t.Context(), record(2)) }()
	waitFor(1)
	n.drop()
	waitFor(2)
	must(t, tx.Commit(t.Context()))
	if err := <-appended; err != nil {
		t.Errorf("append: %v", err)
	}
	appendTo(t, log, record(3))
}

// cut stops all data until mend is called.
func (n *proxy) cut() (mend func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stall = make(chan struct{})
	return func() { close(n.stall) }
}

// TestReplyLost loses the connection after the database has executed a statement and before its reply. Each
// operation takes effect once and succeeds.
func TestReplyLost(t *testing.T) {
	n, p := network(t, newPlace(t))
	store := open(t, p, pgsession.Options{Claim: time.Hour})
	ctx := t.Context()
	log := openLog(t, store, "x")
	input := func(id string) session.Entry { return session.Entry{ID: id, Data: []byte("1")} }
	appendTo(t, log, record(1))
	must(t, second(store.Send(ctx, "x", input("0"))))
	time.Sleep(100 * time.Millisecond) // for announcements, which use the pool

	n.loseReply()
	if err := log.Append(ctx, record(2)); err != nil {
		t.Errorf("append: %v", err)
	}
	n.lost(t)
	appendTo(t, log, record(3))
	must(t, second(store.Send(ctx, "x", input("1"))))
	time.Sleep(100 * time.Millisecond)

	n.loseReply()
	if accepted, err := store.Send(ctx, "x", input("2")); err != nil || !accepted {
		t.Errorf("send: %v, %v", accepted, err)
	}
	n.lost(t)
	if accepted, err := store.Send(ctx, "x", input("2")); err != nil || accepted {
		t.Errorf("send again: %v, %v", accepted, err)
	}

	must(t, openLog(t, store, "y").Close())
	n.loseReply()
	other := openLog(t, store, "y")
	n.lost(t)
	appendTo(t, other, record(1))
	time.Sleep(100 * time.Millisecond)
	must(t, other.Close())

	if err := store.Delete(ctx, "z"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("delete: %v", err)
	}
	n.loseReply()
	if err := store.Delete(ctx, "y"); err != nil {
		t.Errorf("delete: %v", err)
	}
	n.lost(t)
	recs, err := log.Load(ctx)
	if err != nil || len(recs) != 3 {
		t.Errorf("the session holds %d records, %v", len(recs), err)
	}
	if in, err := store.Inputs(ctx, "x"); err != nil || len(in) != 3 {
		t.Errorf("%d inputs wait, %v", len(in), err)
	}
}

// TestNetworkCut cuts the network of a process, for less than a claim lasts and for longer. In the second
// case another process takes over, and the save of the first is refused.
func TestNetworkCut(t *testing.T) {
	const claim = 2 * time.Second // much more than a busy machine keeps a process waiting
	direct := newPlace(t)
	n, p := network(t, direct)
	other := open(t, direct, pgsession.Options{Claim: claim})
	store := open(t, p, pgsession.Options{Claim: claim})
	log := openLog(t, store, "x")
	appendTo(t, log, record(1))

	time.AfterFunc(claim/4, n.cut())
	appendTo(t, log, record(2))
	if _, err := other.Open(t.Context(), "x"); !errors.Is(err, session.ErrConflict) {
		t.Errorf("the claim of a live holder was taken: %v", err)
	}

	mend := n.cut()
	saved := make(chan error)
	go func() { saved <- log.Append(t.Context(), record(3)) }()
	follower, err := other.Open(t.Context(), "x")
	for ; errors.Is(err, session.ErrConflict); follower, err = other.Open(t.Context(), "x") {
		time.Sleep(10 * time.Millisecond)
	}
	must(t, err)
	mend()
	if err := <-saved; !errors.Is(err, session.ErrConflict) {
		t.Errorf("the save of the process that was cut off: %v, want ErrConflict", err)
	}
	if recs, err := follower.Load(t.Context()); err != nil || len(recs) != 2 {
		t.Errorf("the session holds %d records, %v", len(recs), err)
	}
	rec := record(3)
	rec.Status = session.StatusEnded
	appendTo(t, follower, rec)
	must(t, follower.Close())
}

// TestRestart stops a database for longer than a claim lasts. The follower reaches it again before the
// holder, but the holder keeps its claim.
func TestRestart(t *testing.T) {
	const claim = 2 * time.Second
	server, direct := ownServer(t)
	n, p := network(t, direct)
	other := open(t, direct, pgsession.Options{Claim: claim})
	store := open(t, p, pgsession.Options{Claim: claim})
	log := openLog(t, store, "x")
	appendTo(t, log, record(1))
	mend := n.cut()
	must(t, server.Stop())
	time.Sleep(claim + claim/4)
	must(t, server.Start())
	_, err := other.Open(t.Context(), "x")
	mend()
	if !errors.Is(err, session.ErrConflict) {
		t.Errorf("the claim of a live holder was taken: %v", err)
	}
	appendTo(t, log, record(2))
}

// TestWake has a watcher in another store wait for each event: it is notified, and does not have to poll.
func TestWake(t *testing.T) {
	p := newPlace(t)
	writer, watcher := open(t, p, pgsession.Options{}), open(t, p, pgsession.Options{})
	log := openLog(t, writer, "x")
	appendTo(t, log, record(1))
	const events = 30
	var took time.Duration
	begin, seq := time.Now(), int64(1)
	for ev, err := range watcher.Watch(t.Context(), "x", 0) {
		must(t, err)
		if ev.Seq != seq {
			t.Fatalf("event %d, want %d", ev.Seq, seq)
		}
		if seq > 1 {
			took += time.Since(begin)
		}
		if seq++; seq > events {
			break
		}
		begin = time.Now()
		go func() { // when the watcher waits again
			time.Sleep(5 * time.Millisecond)
			if err := log.Append(t.Context(), record(seq)); err != nil {
				t.Error(err)
			}
		}()
	}
	if mean := took / (events - 1); mean > 450*time.Millisecond { // a second without notifications
		t.Errorf("an event takes %v on average", mean)
	} else {
		t.Logf("an event takes %v on average, of which 5 ms are sleep", mean)
	}
}
