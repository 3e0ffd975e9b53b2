package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A conversation is a State that may be stored in a session.
type conversation struct {
	*agent.State
	session *session.Session // nil if the conversation is not stored; then the following are not set
	inbox   session.Inbox    // of the session
	path    string           // of the session, as the user gave it
	results string           // the directory for long tool results
}

// newConversation returns a conversation that is not stored.
func newConversation() *conversation { return &conversation{State: new(agent.State)} }

// openConversation opens the session at path, or returns a conversation that is not stored if
// path is "". The session must be sealed with the user's key, as anyone who can write to its file
// could add an allow rule. With trust it seals an unsealed one.
func openConversation(ctx context.Context, path string, trust bool) (*conversation, error) {
	if path == "" {
		return newConversation(), nil
	}
	p, err := placeOf(path)
	if err != nil {
		return nil, usage("--session %w", err)
	}
	c, err := p.open(ctx, trust)
	if errors.Is(err, session.ErrUnsealed) {
		err = fmt.Errorf("%w; read it, then add --trust-session to trust its conversation and its rules", err)
	}
	if err != nil {
		return nil, fmt.Errorf("--session %s: %w", path, err)
	}
	c.path = path
	return c, nil
}

// save is for [agent.Config.Save]; nil if the conversation is not stored.
func (c *conversation) save() func(context.Context, *agent.State) error {
	if c.session == nil {
		return nil
	}
	return c.session.Save
}

// close lets other processes open the session.
func (c *conversation) close() error {
	if c.session == nil {
		return nil
	}
	return c.session.Close()
}

// hasInputs reports whether inputs wait in the session's inbox, such as answers that were given
// in "kitbag ui".
func (c *conversation) hasInputs(ctx context.Context) (bool, error) {
	if c.session == nil {
		return false, nil
	}
	waiting, err := c.inbox.Inputs(ctx, c.ID)
	return len(waiting) > 0, err
}

// finished reports whether there is nothing to continue: no call waits, and the last message, if
// any, is the model's.
func (c *conversation) finished() bool {
	n := len(c.Messages)
	return len(c.Pending()) == 0 && (n == 0 || c.Messages[n-1].Role == message.RoleAssistant)
}

// resultDir returns the directory for tool results that are too long for the model: next to the
// session, or without a session a temporary one, which remove removes.
func (c *conversation) resultDir() (dir agent.ResultDir, remove func() error, err error) {
	if c.session != nil {
		return agent.ResultDir(c.results), func() error { return nil }, nil
	}
	tmp, err := tempDir("kitbag-results-")
	return agent.ResultDir(tmp), func() error { return os.RemoveAll(tmp) }, err
}

// tempDir makes a temporary directory, which the caller must remove.
func tempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", fmt.Errorf("create a temporary directory: %w; set TMPDIR to a writable directory", err)
	}
	return dir, nil
}

// A place is where a conversation is stored: a session of the session.Dir in dir.
type place struct {
	dir, id string
	old     []string // the names that its file may have if an older version wrote it, in dir
}

const sessionSuffix = ".jsonl" // of the files of session.Dir

// placeOf returns the place that a path names, which may end in .jsonl or .json: s, s.jsonl and
// s.json are the same session. If one of these is a symbolic link, it is the session that the
// link names.
func placeOf(path string) (place, error) {
	file, id := path, trimSuffixes(path)
	for range 10 { // links may form a circle
		target := cmp.Or(linkTarget(file), linkTarget(id+sessionSuffix), linkTarget(id+oldSuffix))
		if target == "" {
			break
		}
		file, id = target, trimSuffixes(target)
	}
	dir, name := filepath.Split(file)
	id = trimSuffixes(name)
	if err := session.CheckID(id); err != nil {
		return place{}, fmt.Errorf("%s: %w; name it so, such as talk-1", path, err)
	}
	p := place{dir: filepath.Clean(dir), id: id, old: []string{id + oldSuffix}}
	if name == id {
		p.old = append([]string{id}, p.old...)
	}
	return p, nil
}

func trimSuffixes(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, sessionSuffix), oldSuffix)
}

// linkTarget returns the path that a symbolic link names, or "" for another file.
func linkTarget(file string) string {
	target, err := os.Readlink(file)
	if err != nil || filepath.IsAbs(target) {
		return target
	}
	return filepath.Join(filepath.Dir(file), target)
}

func (p place) file() string { return filepath.Join(p.dir, p.id+sessionSuffix) }

// stores returns the directory as a store whose sessions are sealed with the user's key, and
// without the seals.
func (p place) stores() (sealed, plain session.Store, err error) {
	if _, err := os.Stat(p.dir); err != nil { // session.Dir would create it
		return nil, nil, fmt.Errorf("%w; create the directory first", err)
	}
	key, err := userKey()
	if err != nil {
		return nil, nil, err
	}
	if plain, err = session.Dir(p.dir); err != nil {
		return nil, nil, err
	}
	sealed, err = session.Sealed(plain, key)
	return sealed, plain, err
}

// open opens the session, after it has imported the file of an older version. With trust it seals
// an unsealed session.
func (p place) open(ctx context.Context, trust bool) (*conversation, error) {
	sealed, plain, err := p.stores()
	if err != nil {
		return nil, err
	}
	if err := p.importOld(ctx, plain, trust); err != nil {
		return nil, err
	}
	s, err := session.Open(ctx, sealed, p.id)
	if errors.Is(err, session.ErrUnsealed) && trust {
		if err := p.sealAgain(ctx, plain); err != nil {
			return nil, err
		}
		s, err = session.Open(ctx, sealed, p.id)
	}
	if err != nil {
		return nil, err
	}
	c := &conversation{State: s.State, session: s, inbox: sealed.(session.Inbox), results: p.results()}
	return c, nil
}

// results returns the directory for long tool results, which an older version may have named
// after its file.
func (p place) results() string {
	old := filepath.Join(p.dir, p.id+oldSuffix+".results")
	if info, err := os.Lstat(old); err == nil && info.IsDir() {
		return old
	}
	return filepath.Join(p.dir, p.id+".results")
}

// sealAgain seals a session with the user's key, whatever seals it has.
func (p place) sealAgain(ctx context.Context, plain session.Store) error {
	log, err := plain.Open(ctx, p.id) // locks the session
	if err != nil {
		return err
	}
	temp := filepath.Join(p.dir, ".kitbag-seal-"+p.id)
	err = p.replace(temp, func(to session.Store) error { return copySession(ctx, plain, to, p.id) })
	return errors.Join(err, os.RemoveAll(temp), log.Close())
}

// replace replaces the file of the session, which the caller has open, by the one that write
// stores in an empty sealed store in the directory temp. The new file is on the disk before it
// gets the name. The caller removes temp.
func (p place) replace(temp string, write func(to session.Store) error) error {
	if err := os.RemoveAll(temp); err != nil { // of a process that was killed
		return err
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	sealed, _, err := place{dir: temp, id: p.id}.stores()
	if err == nil {
		err = write(sealed)
	}
	if err == nil {
		err = os.Rename(filepath.Join(temp, p.id+sessionSuffix), p.file())
	}
	if err != nil {
		return err
	}
	return syncDir(p.dir)
}

// syncDir returns when the new names in a directory are on the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// copySession copies the records and events of a session to a store that does not have it.
func copySession(ctx context.Context, from, to session.Store, id string) error {
	in, recs, err := from.(session.Reader).Read(ctx, id, 0)
	if err != nil {
		return err
	}
	for len(recs) > 0 && recs[0].Seq > 1 { // those before the last whole record
		_, older, err := from.(session.Reader).Read(ctx, id, recs[0].Seq-1)
		if err != nil {
			return err
		}
		recs = append(older, recs...)
	}
	events := map[int64][]session.Event{} // by record
	if in.Event > 0 {
		for ev, err := range from.(session.Watcher).Watch(ctx, id, 0) {
			if err != nil {
				return err
			}
			events[ev.Record] = append(events[ev.Record], session.Event{Seq: ev.Seq, Data: ev.Data})
			if ev.Seq >= in.Event {
				break
			}
		}
	}
	log, err := to.Open(ctx, id)
	if err != nil {
		return err
	}
	for _, rec := range recs {
		rec.Events = events[rec.Seq]
		for _, in := range rec.Consumed { // a record can only consume what was sent
			entry := session.Entry{ID: in.ID, Data: []byte("{}")}
			if _, err := to.(session.Inbox).Send(ctx, id, entry); err != nil {
				return errors.Join(err, log.Close())
			}
		}
		if err := log.Append(ctx, rec); err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}

// readUntrusted reads the State of a session, or of a file of an older version, whoever wrote it.
// It changes nothing.
func readUntrusted(ctx context.Context, path string) (*agent.State, error) {
	p, err := placeOf(path)
	if err != nil {
		return nil, usage("%w", err)
	}
	if modTime(p.file()).IsZero() {
		for _, name := range p.old {
			data, err := os.ReadFile(filepath.Join(p.dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			st := new(agent.State)
			if err := json.Unmarshal(data, st); err != nil {
				return nil, fmt.Errorf("not saved by kitbag run --session: %w", jsonError(data, err))
			}
			return st, nil
		}
		return nil, fmt.Errorf("%s: %w", p.file(), fs.ErrNotExist)
	}
	store, err := session.Dir(p.dir)
	if err != nil {
		return nil, err
	}
	st, _, err := session.Read(ctx, store, p.id, 0)
	return st, err
}
