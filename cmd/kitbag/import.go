package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// Older versions stored a conversation in a file of its own: the JSON of the State, sealed with
// the user's key. Its events were in a session.Dir named FILE.events, whose records have the
// length of the conversation as their data. Such a file is imported when it is first used, and
// then gets another name: FILE.imported.

const oldSuffix = ".json" // of the files of older versions, as far as kitbag chose the name

// importOld imports the file of an older version, if there is one and the session does not exist.
// The file must be sealed with the user's key, unless trust is set. If the process is killed, the
// next call starts anew or completes the import.
func (p place) importOld(ctx context.Context, plain session.Store, trust bool) error {
	if isOld(p.file()) { // the user has named a file of an older version so
		return fmt.Errorf("%s was written by an older version; rename it to %s, and its directories .events "+
			"and .results likewise", p.file(), p.id+oldSuffix)
	}
	for _, name := range p.old {
		f, err := openOld(filepath.Join(p.dir, name))
		if err != nil {
			return err
		}
		if f != nil {
			return errors.Join(p.importFile(ctx, plain, f, name, trust), f.Close())
		}
		_ = os.Remove(p.importing(name)) // that a process left which was killed at its end
	}
	return nil
}

// isOld reports whether a file begins like a State.
func isOld(file string) bool {
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		return false // opening a pipe may block
	}
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	const begin = `{"version":`
	head := make([]byte, len(begin))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == begin
}

// importing returns the directory that exists while a file is imported: until the file has its
// new name.
func (p place) importing(name string) string { return filepath.Join(p.dir, ".kitbag-import-"+name) }

// importFile imports the locked file f, which has the given name in p.dir.
func (p place) importFile(
	ctx context.Context, plain session.Store, f *os.File, name string, trust bool,
) (err error) {
	log, err := plain.Open(ctx, p.id) // locks the session
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	recs, err := log.Load(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", p.file(), err)
	}
	if len(recs) == 0 {
		err = p.importInto(ctx, f, name, trust)
	} else if _, statErr := os.Stat(p.importing(name)); statErr != nil {
		return nil // f is of another conversation, or of another program
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), freeName(f.Name()+importedSuffix)); err != nil {
		return err
	}
	return errors.Join(syncDir(p.dir), os.RemoveAll(p.importing(name)))
}

const importedSuffix = ".imported"

// freeName returns path, or if a file has this name, path with a number.
func freeName(path string) string {
	name := path
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", path, n)
	}
}

// importInto stores the conversation in f as the session, which the caller has open, with the
// time of f.
func (p place) importInto(ctx context.Context, f *os.File, name string, trust bool) error {
	old, err := readOld(f, trust)
	if err != nil {
		return fmt.Errorf("session file %s was left unchanged: %w", f.Name(), err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	temp := p.importing(name)
	return p.replace(temp, func(to session.Store) error {
		if err := old.copyTo(ctx, to, p.id); err != nil {
			return fmt.Errorf("import %s: %w", f.Name(), err)
		}
		return os.Chtimes(filepath.Join(temp, p.id+sessionSuffix), time.Time{}, info.ModTime())
	})
}

// openOld opens and locks a file of an older version; it returns nil if there is no such file.
func openOld(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = lockOld(f)
	if now, statErr := os.Lstat(path); err == nil && (statErr != nil || !os.SameFile(info, now)) {
		err = fmt.Errorf("%w: its file was replaced", session.ErrConflict)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

// An oldSession is the content of a file of an older version.
type oldSession struct {
	data    []byte // the State
	state   *agent.State
	lastSeq int64 // of the State's events
	past    []pastRecord
}

// A pastRecord is a record of the events of a session file: the events since the record before
// it, and how long the conversation was then.
type pastRecord struct {
	Data struct {
		Messages   int `json:"messages"`
		Generation int `json:"generation"`
	} `json:"data"`
	Status session.Status  `json:"status"`
	Events []session.Event `json:"events"`
}

// readOld reads a file and its events. It checks the seal before it parses the file, unless trust
// is set.
func readOld(f *os.File, trust bool) (*oldSession, error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if !trust {
		key, err := userKey()
		if err != nil {
			return nil, err
		}
		if !hasOldSeal(data, key) {
			return nil, session.ErrUnsealed
		}
	}
	old := &oldSession{data: data, state: new(agent.State)}
	if err := json.Unmarshal(data, old.state); err != nil {
		return nil, err
	}
	var head struct {
		Seq int64 `json:"seq"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	old.lastSeq = head.Seq
	old.readEvents(filepath.Join(f.Name()+".events", old.state.ID+sessionSuffix))
	return old, nil
}

// hasOldSeal reports whether the last member of a JSON object is its seal.
func hasOldSeal(data, key []byte) bool {
	data = bytes.TrimSuffix(data, []byte("\n"))
	sealLen := len(`,"file_seal":""}`) + base64.RawURLEncoding.EncodedLen(sha256.Size)
	at := len(data) - sealLen
	if at < 0 {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(data[:at])
	want := fmt.Appendf(nil, `,"file_seal":"%s"}`, base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
	return hmac.Equal(data[at:], want)
}

// readEvents reads the events as far as they fit the State. They were not sealed, and only affect
// what is shown.
func (o *oldSession) readEvents(path string) {
	lines, err := os.ReadFile(path)
	if err != nil || session.CheckID(o.state.ID) != nil {
		return // the conversation is complete without them
	}
	var last int64
	for line := range bytes.Lines(lines) {
		var rec pastRecord
		if !bytes.HasPrefix(line, []byte(`{"crc"`)) || json.Unmarshal(line, &rec) != nil {
			continue // a header, a summary, or cut off
		}
		rec.Events = slices.DeleteFunc(rec.Events, func(ev session.Event) bool {
			fits := ev.Seq > last && ev.Seq <= o.lastSeq
			if fits {
				last = ev.Seq
			}
			return !fits
		})
		o.past = append(o.past, rec)
	}
}

// copyTo stores the conversation as the session id, with a record for each record of its events.
// As before the import, an earlier State is the newest one with fewer messages, and there is none
// before the last compaction.
func (o *oldSession) copyTo(ctx context.Context, store session.Store, id string) (err error) {
	events := &importStore{Store: store}
	s, err := session.Open(ctx, events, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	newest, err := withID(o.data, id)
	if err != nil {
		return err
	}
	// An earlier State has no calls that are open, and no run.
	earlier, err := withID(o.data, id, "messages", "open", "away", "running", "run")
	if err != nil {
		return err
	}
	stored := false // a record; older versions wrote none that is !ok after one that is not
	for i, rec := range o.past {
		n, ok := o.messagesAt(rec)
		if !ok && !stored {
			events.lost = append(events.lost, rec.Events...)
			continue
		}
		events.add(rec)
		if !ok || n == len(o.state.Messages) {
			continue // a later record has these events
		}
		stored = true
		if err := s.State.UnmarshalJSON(earlier); err != nil {
			return err
		}
		o.cutMessages(s.State, n)
		// With another label, Save stores a record even if the State is the same.
		s.Labels = map[string]string{"record": fmt.Sprint(i)}
		if err := s.Save(ctx, s.State); err != nil {
			return err
		}
	}
	if err := s.State.UnmarshalJSON(newest); err != nil {
		return err
	}
	s.State.Messages = o.state.Messages // the same pointers: they are not stored again
	events.status = o.status()
	return s.Save(ctx, s.State)
}

// cutMessages gives st the first n messages, and takes back the usage of the others.
func (o *oldSession) cutMessages(st *agent.State, n int) {
	st.Messages = o.state.Messages[:n]
	for _, m := range o.state.Messages[n:] {
		if u := m.Usage; u != nil {
			st.Usage.Add(message.Usage{Input: -u.Input, Output: -u.Output, Cached: -u.Cached,
				CacheWrite: -u.CacheWrite, Reasoning: -u.Reasoning})
		}
	}
}

// withID returns the JSON of a State with another id, and without some members.
func withID(state []byte, id string, without ...string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(state, &members); err != nil {
		return nil, err
	}
	for _, name := range append(without, "file_seal") {
		delete(members, name)
	}
	members["id"] = fmt.Appendf(nil, "%q", id)
	return json.Marshal(members)
}

// messagesAt returns how many of the messages an earlier State has; ok is false if it has others.
func (o *oldSession) messagesAt(rec pastRecord) (n int, ok bool) {
	n, all := rec.Data.Messages, o.state.Messages
	if rec.Data.Generation != o.state.Generation || n < 0 || n > len(all) {
		return 0, false
	}
	if n > 0 && n < len(all) && len(all[n-1].ToolCalls()) > 0 {
		n++ // calls need their results
	}
	return n, true
}

// status returns the status of the conversation, which is not running.
func (o *oldSession) status() session.Status {
	switch {
	case len(o.state.Pending()) > 0:
		return session.StatusWaiting
	case o.state.Done() || len(o.state.Messages) == 0:
		return session.StatusEnded
	case len(o.past) > 0:
		return o.past[len(o.past)-1].Status
	}
	return session.StatusWorking // it was cut off
}

// An importStore adds events and a status to the records that a session stores.
type importStore struct {
	session.Store
	status session.Status
	events []session.Event // for the next record
	lost   []session.Event // those before the last compaction, whose States do not exist any more
}

func (i *importStore) add(rec pastRecord) {
	i.events, i.status = append(i.events, rec.Events...), rec.Status
}

func (i *importStore) Open(ctx context.Context, id string) (session.Log, error) {
	log, err := i.Store.Open(ctx, id)
	return &importLog{Log: log, store: i}, err
}

type importLog struct {
	session.Log
	store *importStore
	shift int64 // the number of records that the session does not know
}

func (l *importLog) Append(ctx context.Context, rec session.Record) error {
	if len(l.store.lost) > 0 {
		if err := l.appendLost(ctx); err != nil {
			return err
		}
	}
	rec.Seq += l.shift
	rec.Status, rec.Events, rec.Labels = l.store.status, l.store.events, nil
	l.store.events = nil
	return l.Log.Append(ctx, rec)
}

// appendLost stores the events whose States do not exist, in records that contain no State: so the
// session cannot be copied up to one of them. There are two records, because a copy up to the first
// record of a session is empty.
func (l *importLog) appendLost(ctx context.Context) error {
	for _, events := range [][]session.Event{l.store.lost[:1], l.store.lost[1:]} {
		l.shift++
		rec := session.Record{Seq: l.shift, Whole: true, Data: []byte("{}"), Events: events}
		if err := l.Log.Append(ctx, rec); err != nil {
			return err
		}
	}
	l.store.lost = nil
	return nil
}

// importAll imports the files of older versions in a directory that are sealed with the user's
// key, the last used last, and leaves others as they are.
func importAll(ctx context.Context, dir string, trust bool) error {
	files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+oldSuffix))
	if err != nil || len(files) == 0 {
		return err
	}
	slices.SortFunc(files, func(a, b string) int { return modTime(a).Compare(modTime(b)) })
	for _, file := range files {
		p, err := placeOf(file)
		if err != nil || p.dir != filepath.Clean(dir) {
			continue // a file or a link that no session of this directory can be
		}
		_, plain, err := p.stores()
		if err != nil {
			return err
		}
		if err := p.importOld(ctx, plain, trust); err != nil && ctx.Err() != nil {
			return err
		} // otherwise opening the session fails with this error
	}
	return nil
}

// modTime returns when a file was last changed; zero if it does not exist.
func modTime(file string) time.Time {
	if info, err := os.Lstat(file); err == nil {
		return info.ModTime()
	}
	return time.Time{}
}

// escapeGlob returns the pattern that matches only the path itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
