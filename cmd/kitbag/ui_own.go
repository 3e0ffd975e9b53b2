package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"

	"github.com/kitbag-go/kitbag/agent/session"
)

// An ownStore has conversations of "kitbag run" and "kitbag chat" for the page. One that is not
// sealed with the user's key is shown, but neither answered nor copied: anyone could have written
// its rules.
type ownStore struct {
	fullStore // sealed
	plain     fullStore
	dir       string
	only      string               // the id of the only session, except for copies; "" for all in dir
	old       map[string]fullStore // by id: copies in memory of files that were not imported

	mu     sync.Mutex
	copies map[string]bool // made by this process
}

// A fullStore is what session.Dir and session.Sealed return.
type fullStore interface {
	session.Store
	session.Reader
	session.Inbox
	session.Watcher
}

// sealLabel is the label of a session that is not sealed with the user's key.
const sealLabel = "seal"

func notTrusted(id string) error {
	return fmt.Errorf("session %q: %w; read it, then start kitbag ui with --trust-session "+
		"to trust its conversation and its rules", id, session.ErrUnsealed)
}

// newOwnStore opens a directory, and imports the files of older versions in it. With trust it
// seals what is not sealed.
func newOwnStore(ctx context.Context, dir, only string, trust bool) (*ownStore, error) {
	sealed, plain, err := place{dir: dir}.stores()
	if err != nil {
		return nil, err
	}
	o := &ownStore{fullStore: sealed.(fullStore), plain: plain.(fullStore), dir: dir, only: only,
		old: map[string]fullStore{}, copies: map[string]bool{}}
	ids := []string{only}
	if only == "" {
		if err := importAll(ctx, dir, trust); err != nil {
			return nil, err
		}
		if ids, err = o.files(); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if err := o.prepare(ctx, id, trust); err != nil && only != "" {
			return nil, err
		} // otherwise the page of the session shows the error
	}
	return o, nil
}

// files returns the ids of all sessions with a file.
func (o *ownStore) files() (ids []string, err error) {
	entries, err := os.ReadDir(o.dir)
	for _, e := range entries {
		if id, ok := sessionID(e.Name()); ok && e.Type().IsRegular() {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// prepare imports or seals a session, or if it is not trusted, prepares it to be shown.
func (o *ownStore) prepare(ctx context.Context, id string, trust bool) error {
	p := place{dir: o.dir, id: id, old: []string{id + oldSuffix}}
	err := p.importOld(ctx, o.plain, trust)
	if errors.Is(err, session.ErrUnsealed) {
		return o.showOld(ctx, p)
	}
	if err != nil || !trust {
		return err
	}
	if _, _, err = o.fullStore.Read(ctx, id, 0); errors.Is(err, session.ErrUnsealed) {
		return p.sealAgain(ctx, o.plain)
	}
	return nil
}

// showOld copies the file of an older version into memory.
func (o *ownStore) showOld(ctx context.Context, p place) error {
	f, err := os.Open(filepath.Join(p.dir, p.id+oldSuffix))
	if err != nil {
		return err
	}
	old, err := readOld(f, true)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if old.state.ID == "" {
		return fmt.Errorf("%s: %w", f.Name(), session.ErrUnsealed) // of another program
	}
	store := session.Memory().(fullStore)
	if err := old.copyTo(ctx, store, p.id); err != nil {
		return err
	}
	o.old[p.id] = store
	return nil
}

// path returns the path of a session for openConversation.
func (o *ownStore) path(id string) string { return filepath.Join(o.dir, id) }

// has reports whether a session belongs to the store. It need not exist.
func (o *ownStore) has(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.only == "" || id == o.only || o.copies[id]
}

// reader returns the store to read a session from, and whether the session is trusted.
func (o *ownStore) reader(ctx context.Context, id string) (store fullStore, trusted bool, err error) {
	if !o.has(id) {
		return nil, false, fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	if old := o.old[id]; old != nil {
		return old, false, nil
	}
	if _, _, err := o.fullStore.Read(ctx, id, 0); errors.Is(err, session.ErrUnsealed) {
		return o.plain, false, nil
	}
	return o.fullStore, true, nil
}

// checkSeal returns an error if a session is not sealed with the user's key.
func (o *ownStore) checkSeal(ctx context.Context, id string) error {
	_, trusted, err := o.reader(ctx, id)
	if err == nil && !trusted {
		err = notTrusted(id)
	}
	return err
}

func (o *ownStore) Read(ctx context.Context, id string, seq int64) (session.Info, []session.Record, error) {
	if o.has(id) && o.old[id] == nil {
		if in, recs, err := o.fullStore.Read(ctx, id, seq); !errors.Is(err, session.ErrUnsealed) {
			return in, recs, err
		}
	}
	store, _, err := o.reader(ctx, id)
	if err != nil {
		return session.Info{}, nil, err
	}
	in, recs, err := store.Read(ctx, id, seq)
	if err != nil {
		return in, recs, err
	}
	in.Labels = map[string]string{sealLabel: "missing or wrong"}
	for i := range recs {
		recs[i].Labels = in.Labels // for copyLog
	}
	return in, recs, nil
}

func (o *ownStore) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		store, _, err := o.reader(ctx, id)
		if err != nil {
			yield(session.Event{}, err)
			return
		}
		store.Watch(ctx, id, after)(yield)
	}
}

// List returns the sessions of the store, with those in memory.
func (o *ownStore) List(ctx context.Context, q session.Query) (session.Page, error) {
	var infos []session.Info
	add := func(store session.Store) error {
		all := session.Query{ID: q.ID, Limit: 1000}
		for {
			page, err := store.List(ctx, all)
			if err != nil {
				return err
			}
			for _, in := range page.Infos {
				if o.has(in.ID) {
					infos = append(infos, in)
				}
			}
			if all.After = page.Next; page.Next == "" {
				return nil
			}
		}
	}
	if err := add(o.plain); err != nil {
		return session.Page{}, err
	}
	for _, store := range o.old {
		if err := add(store); err != nil {
			return session.Page{}, err
		}
	}
	return q.Page(infos)
}

// Open opens a new session for a copy.
func (o *ownStore) Open(ctx context.Context, id string) (session.Log, error) {
	if _, err := os.Lstat(filepath.Join(o.dir, id+oldSuffix)); err == nil {
		return nil, fmt.Errorf("session %q: %w: it has a file of an older version", id, session.ErrConflict)
	}
	log, err := o.fullStore.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.copies[id] = true
	return copyLog{log, id}, nil
}

// A copyLog is the log of a copy, which has the labels of its original.
type copyLog struct {
	session.Log
	id string
}

func (l copyLog) Append(ctx context.Context, rec session.Record) error {
	if rec.Labels[sealLabel] != "" {
		return notTrusted(l.id)
	}
	return l.Log.Append(ctx, rec)
}

// Delete always fails.
func (o *ownStore) Delete(context.Context, string) error {
	return errors.New("conversations are not deleted here; use kitbag sessions remove, " +
		"or remove the files whose names begin with the id")
}

// Send sends an input to a session that is sealed, or does not exist yet.
func (o *ownStore) Send(ctx context.Context, id string, in session.Entry) (bool, error) {
	if err := o.checkSeal(ctx, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return o.fullStore.Send(ctx, id, in)
}
