package replica

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// TestKeys checks which replica opens what, for which purpose, and for how long.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(Memory)
		one, other, stranger := NewKeys(store), NewKeys(store), NewKeys(new(Memory))
		seal := func(k *Keys) string {
			t.Helper()
			s, err := k.Seal(t.Context(), "a", "x")
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		opens := func(k *Keys, purpose, sealed string) bool {
			var got string
			return k.Open(t.Context(), purpose, sealed, &got) == nil && got == "x"
		}
		first := seal(one)
		seal(stranger)
		for why, row := range map[string]struct {
			k               *Keys
			purpose, sealed string
			want            bool
		}{
			"own":              {one, "a", first, true},
			"another replica":  {other, "a", first, true},
			"another purpose":  {one, "b", first, false},
			"another server":   {stranger, "a", first, false},
			"changed":          {one, "a", first[:len(first)-3] + "AAA", false},
			"cut":              {one, "a", first[:8], false},
			"empty":            {one, "a", "", false},
			"not an encoding":  {one, "a", "%%%", false},
			"sealed by anyone": {one, "a", strings.Repeat("A", len(first)), false},
		} {
			if got := opens(row.k, row.purpose, row.sealed); got != row.want {
				t.Errorf("%s: %v", why, got)
			}
		}
		if seal(one) == first {
			t.Error("the same value is sealed in the same way twice")
		}
		for day := 1; day <= 2*keptKeys; day++ {
			time.Sleep(rotateAfter + time.Minute)
			maker, reader := one, other
			if day%2 == 0 {
				maker, reader = other, one
			}
			if next := seal(maker); next[:5] == first[:5] || !opens(reader, "a", next) {
				t.Errorf("day %d: the key was not changed, or the other replica does not know it", day)
			}
			if got, want := opens(one, "a", first), day < keptKeys; got != want {
				t.Errorf("day %d: the first key opens: %v, want %v", day, got, want)
			}
		}
	})
}

// TestQuotas draws what replicas use and when they join, need more, give back and leave. The parts never exceed the limit
// together, and in the end one can use all that the others do not.
func TestQuotas(t *testing.T) {
	for _, keep := range []bool{false, true} {
		rapid.Check(t, func(rt *rapid.T) { testQuotas(t, rt, keep) })
	}
}

func testQuotas(t *testing.T, rt *rapid.T, keep bool) {
	limit := rapid.Int64Range(1, 40).Draw(rt, "limit")
	store := new(Memory)
	type one struct {
		*Members
		quota  *quota
		budget *wire.Budget
	}
	var all []one
	divide := func(o one) {
		if err := errors.Join(o.Beat(t.Context()), o.quota.divide(t.Context())); err != nil {
			rt.Fatal(err)
		}
	}
	join := func() {
		b := new(wire.Budget)
		m, err := Join(t.Context(), fmt.Sprint("r", len(all)), fmt.Sprint("http://", len(all)), store, func() {})
		if err != nil {
			rt.Fatal(err)
		}
		all = append(all, one{m, NewQuotas(store, m).add("anna", keep, []Limit{{"calls", limit, b}}), b})
	}
	take := func(o one) bool {
		if !o.budget.Take(1) {
			o.quota.needsMore.Store(true) // as grow does
			divide(o)
			return o.budget.Take(1)
		}
		return true
	}
	check := func() {
		sum, used := int64(0), int64(0)
		for _, o := range all {
			sum += o.budget.Max.Load()
			used += o.budget.Used()
		}
		if sum > limit || used > limit {
			rt.Fatalf("parts of %d are given, %d used, and the limit is %d", sum, used, limit)
		}
	}
	join()
	join()
	rt.Repeat(map[string]func(*rapid.T){
		"join": func(rt *rapid.T) {
			if len(all) == 5 {
				rt.Skip()
			}
			join()
		},
		"take": func(rt *rapid.T) { take(rapid.SampledFrom(all).Draw(rt, "who")) },
		"release": func(rt *rapid.T) {
			if o := rapid.SampledFrom(all).Draw(rt, "who"); o.budget.Used() > 0 {
				o.budget.Add(-1)
			}
		},
		"divide": func(rt *rapid.T) { divide(rapid.SampledFrom(all).Draw(rt, "who")) },
		"leave": func(rt *rapid.T) {
			o := all[len(all)-1]
			if len(all) == 1 {
				rt.Skip()
			}
			if err := o.Leave(t.Context()); err != nil {
				rt.Fatal(err)
			}
			all = all[:len(all)-1]
		},
		"": func(*rapid.T) { check() },
	})
	free := limit
	for _, o := range all {
		free -= o.budget.Used()
	}
	for range 4 * limit {
		if take(all[0]) {
			free--
		}
		for _, o := range all {
			divide(o)
		}
		check()
	}
	if free != 0 {
		rt.Errorf("%d of %d cannot be used", free, limit)
	}
}

// TestRate draws takers on several replicas, and pauses. In no time T more is taken than the limit, what is filled up in T, and
// what each replica has taken before; and a replica that is alone gets a token after the time that it was told to wait.
func TestRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit, every := rapid.IntRange(1, 50).Draw(rt, "limit"), time.Minute
		replicas := rapid.IntRange(1, 4).Draw(rt, "replicas")
		pauses := rapid.SliceOfN(rapid.IntRange(-8, 5), 1, 200).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			store := new(Memory)
			all := make([]*Rate, replicas)
			for i := range all {
				all[i] = NewRate(store, "x", limit, every)
			}
			var taken []time.Time
			for i, pause := range pauses {
				if pause > 0 {
					time.Sleep(every >> (3 * pause))
				}
				for try := range 2 {
					wait, err := all[i*i%replicas].Take(t.Context())
					if err != nil || try == 1 && replicas == 1 && wait > 0 {
						t.Fatal("no token after waiting as long as it takes:", wait, err)
					}
					if wait == 0 {
						taken = append(taken, time.Now())
						break
					}
					time.Sleep(wait)
				}
			}
			for i, from := range taken {
				for j, to := range taken[i:] {
					most := float64(limit)*(1+float64(to.Sub(from))/float64(every)) + float64(replicas*(Batch(limit)-1)) + 1e-3
					if float64(j+1) > most {
						t.Fatalf("%d were taken in %v, and the limit is %d in %v: at most %v", j+1, to.Sub(from), limit, every, most)
					}
				}
			}
		})
	})
}

// TestDeath checks when a replica counts as dead: when it has not shown for a while that it is alive, or when another one says so;
// and that one that was only cut off learns it.
func TestDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(Memory)
		removed := 0
		join := func(id string) *Members {
			m, err := Join(t.Context(), id, "http://"+id, store, func() { removed++ })
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a, b := join("a"), join("b")
		alive := func() bool {
			t.Helper()
			url, err := b.URL(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			return url == "http://a"
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		defer running.Wait()
		defer stop()
		if !alive() {
			t.Error("a replica that has joined is dead")
		}
		time.Sleep(deadAfter - beatEvery)
		if !alive() || a.Current() != true {
			t.Error("a replica is dead too early")
		}
		time.Sleep(3 * beatEvery)
		if alive() || a.Current() || removed != 0 {
			t.Error("a silent replica is alive")
		}
		if err := a.Beat(t.Context()); err != nil || removed != 1 {
			t.Errorf("a replica that was cut off has learned it %d times: %v", removed, err)
		}
		time.Sleep(2 * beatEvery)
		if !alive() {
			t.Error("a replica that has come back is dead")
		}
		if err := b.Beat(t.Context(), "a"); err != nil || alive() {
			t.Errorf("a replica that was found dead is alive: %v", err)
		}
		c := join("c")
		if id, url := c.Other(); id != "b" || url == "" {
			t.Errorf("the other of c is %q at %q", id, url)
		}
		if err := b.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := c.Beat(t.Context())
		if id, url := c.Other(); err != nil || id != "" || url != "" {
			t.Errorf("a replica that is drained would get sessions: %v", err)
		}
	})
}

// TestLostStream checks what a client gets of a stream that breaks: an event that says so, but never as a part of another.
func TestLostStream(t *testing.T) {
	for _, row := range []struct{ sent, want string }{
		{"", "LOST"},
		{"data: a\n\n", "data: a\n\nLOST"},
		{":\n\n", ":\n\nLOST"},
		{"data: a\n", "data: a\n!"},
		{"data: a\n\ndata: {\"x", "data: a\n\ndata: {\"x!"},
	} {
		for size := 1; size < 5; size++ {
			broken := io.MultiReader(strings.NewReader(row.sent), errReader{})
			s := &stream{ReadCloser: io.NopCloser(limited{broken, size}), ctx: t.Context(), lostEvent: "LOST"}
			got, err := io.ReadAll(s)
			if err != nil {
				got = append(got, '!')
			}
			if string(got) != row.want {
				t.Errorf("%q: %q, want %q", row.sent, got, row.want)
			}
		}
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// limited reads at most n bytes at once.
type limited struct {
	r io.Reader
	n int
}

func (l limited) Read(p []byte) (int, error) { return l.r.Read(p[:min(len(p), l.n)]) }

// TestForward checks what is passed on, and what a replica accepts.
func TestForward(t *testing.T) {
	keys := NewKeys(new(Memory))
	here, there := NewForwarder("here", keys, time.Minute), NewForwarder("there", keys, time.Minute)
	defer here.Close()
	var got *http.Request
	var body string
	var accepted error
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("unread") {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
			return
		}
		data, _ := io.ReadAll(r.Body)
		if r.URL.Query().Has("died") {
			panic(http.ErrAbortHandler)
		}
		got, body = r, string(data)
		accepted = there.Check(r)
		if r.URL.Query().Has("missing") {
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
		_, _ = io.WriteString(w, "answer")
	}))
	defer far.Close()
	request := func(url string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, url, strings.NewReader("body"))
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Mcp-Session-Id", "s")
		r.Header.Set("Connection", "Mcp-Name") // a proxy would remove that header
		r.Header.Set("Mcp-Name", "x")
		return r
	}
	w := httptest.NewRecorder()
	r := request("http://evil.example.com/other/path?sessionId=7")
	r.Header.Set(Header, "forged")
	if err := here.Forward(r.Context(), w, r, "there", far.URL+"/mcp", ""); err != nil || accepted != nil {
		t.Fatal(err, accepted)
	}
	if w.Code != http.StatusOK || w.Body.String() != "answer" || body != "body" || got.URL.String() != "/mcp?sessionId=7" || got.Header.Get("Authorization") != "Bearer secret" ||
		got.Header.Get("Mcp-Session-Id") != "s" || got.Header.Get("Mcp-Name") != "x" || "http://"+got.Host != far.URL {
		t.Errorf("forwarded %v %q to %s", got, body, got.Host)
	}
	for why, row := range map[string]struct {
		at     *Forwarder
		change func(http.Header)
	}{
		"used":        {there, func(http.Header) {}},
		"for another": {here, func(http.Header) {}},
		"two":         {there, func(h http.Header) { h.Add(Header, h.Get(Header)) }},
		"changed":     {there, func(h http.Header) { h.Set(Header, h.Get(Header)+"AA") }},
		"empty":       {there, func(h http.Header) { h.Set(Header, "") }},
	} {
		again := got.Clone(t.Context())
		row.change(again.Header)
		if err := row.at.Check(again); err == nil {
			t.Errorf("a pass that is %s is accepted", why)
		}
	}
	for why, row := range map[string]struct {
		url, to string
		want    error
	}{
		"missing": {"http://x/?missing", far.URL, ErrNotHere},
		"unread":  {"http://x/?unread", far.URL, ErrNotSent},
		"died":    {"http://x/?died", far.URL, io.ErrUnexpectedEOF},
		"refused": {"http://x/", "http://127.0.0.1:1", ErrRefused},
		"no host": {"http://x/", "http://host.invalid", ErrNotSent},
		"no URL":  {"http://x/", "http://%", ErrNotSent},
	} {
		w, r := httptest.NewRecorder(), request(row.url)
		if err := here.Forward(r.Context(), w, r, "there", row.to, ""); !errors.Is(err, row.want) || errors.Is(err, ErrNotSent) != (row.want == ErrNotSent) || w.Body.Len() > 0 {
			t.Errorf("%s: %v %q, want %v", why, err, w.Body, row.want)
		}
	}
}

// TestQuotaAgain checks that a part can be requested at once after it was given back.
func TestQuotaAgain(t *testing.T) {
	store := new(Memory)
	m, err := Join(t.Context(), "a", "http://a", store, func() {})
	if err != nil {
		t.Fatal(err)
	}
	b := new(wire.Budget)
	q := NewQuotas(store, m).add("anna", false, []Limit{{"calls", 4, b}})
	for i := range 3 {
		if b.More(t.Context()); !b.Take(1) {
			t.Fatalf("time %d: no part", i)
		}
		b.Add(-1)
		if err := q.refresh(t.Context()); err != nil { // after a while without need
			t.Fatal(err)
		}
		if err := q.refresh(t.Context()); err != nil || b.Max.Load() != 0 {
			t.Fatalf("time %d: it has kept a part of %d: %v", i, b.Max.Load(), err)
		}
	}
}

// refusing is a store whose values other replicas change all the time.
type refusing struct{ Memory }

func (*refusing) Swap(context.Context, string, []byte, []byte, time.Duration) (bool, error) {
	return false, nil
}

// A slow Store takes a second for everything.
type slow struct {
	Memory
	gets, swaps atomic.Int64
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, error) {
	s.gets.Add(1)
	time.Sleep(time.Second)
	return s.Memory.Get(ctx, key)
}

func (s *slow) Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error) {
	s.swaps.Add(1)
	time.Sleep(time.Second)
	return s.Memory.Swap(ctx, key, old, new, ttl)
}

// TestUnknown lets many clients name keys and replicas that do not exist, while the store is slow. That delays no one who needs
// what is known, and causes few requests to the store.
func TestUnknown(t *testing.T) {
	forged := base64.RawURLEncoding.EncodeToString(make([]byte, 100))
	for name, start := range map[string]func(t *testing.T, store *slow) (unknown, known func() error){
		"a key": func(t *testing.T, store *slow) (unknown, known func() error) {
			k := NewKeys(store)
			own, err := k.Seal(t.Context(), "a", "x")
			if err != nil {
				t.Fatal(err)
			}
			return func() error {
					if err := k.Open(t.Context(), "a", forged, new(string)); err != errSealed {
						return fmt.Errorf("a forged seal: %w", err)
					}
					return nil
				}, func() error {
					_, err := k.Seal(t.Context(), "a", "y")
					return errors.Join(err, k.Open(t.Context(), "a", own, new(string)))
				}
		},
		"a replica": func(t *testing.T, store *slow) (unknown, known func() error) {
			m, err := Join(t.Context(), "a", "http://a", store, func() {})
			if err != nil {
				t.Fatal(err)
			}
			return func() error {
					if url, err := m.URL(t.Context(), "gone"); url != "" || err != nil {
						return fmt.Errorf("an unknown replica: %q %w", url, err)
					}
					return nil
				}, func() error {
					if url, err := m.URL(t.Context(), "a"); url != "http://a" || err != nil || m.Draining() || m.Count() != 1 {
						return fmt.Errorf("a known replica: %q %w", url, err)
					}
					return nil
				}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := new(slow)
			unknown, known := start(t, store)
			store.gets.Store(0)
			store.swaps.Store(0)
			began := time.Now()
			var work sync.WaitGroup
			for range 500 {
				work.Go(func() {
					if err := unknown(); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if err := known(); err != nil || time.Since(began) > 0 {
				t.Errorf("%s that is known: %v, after %v", name, err, time.Since(began))
			}
			work.Wait()
			if gets, swaps := store.gets.Load(), store.swaps.Load(); gets > 2 || swaps > 0 || time.Since(began) > 2*time.Second {
				t.Errorf("%s that is unknown: %d and %d requests to the store in %v", name, gets, swaps, time.Since(began))
			}
		})
	}
}

// TestUnlocked checks that nothing is locked between two attempts to change a value, so that only one call is delayed.
func TestUnlocked(t *testing.T) {
	m := &Members{ID: "a", store: new(refusing), beats: map[string]beat{}}
	q := NewQuotas(m.store, m).add("anna", true, []Limit{{"calls", 4, new(wire.Budget)}})
	r := NewRate(m.store, "x", 5, time.Minute)
	for name, row := range map[string]struct {
		mu *sync.Mutex
		do func() error
	}{
		"the members": {&m.changing, func() error { return m.Beat(t.Context()) }},
		"a quota":     {&q.mu, func() error { return q.divide(t.Context()) }},
		"a rate":      {&r.mu, func() error { _, err := r.Take(t.Context()); return err }},
	} {
		synctest.Test(t, func(t *testing.T) {
			failed := make(chan error, 1)
			go func() { failed <- row.do() }()
			synctest.Wait()
			if !row.mu.TryLock() {
				t.Errorf("%s: locked while waiting for the next attempt", name)
			} else {
				row.mu.Unlock()
			}
			if err := <-failed; err == nil || !strings.Contains(err.Error(), "other replicas changed") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
