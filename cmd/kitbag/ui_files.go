package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

// A fileStore is a session.Store over session files, which are sealed with the user's key. It reads existing files but
// does not open them: "kitbag run" does that. Inputs stay in memory until the agent takes them.
type fileStore struct {
	dir   string
	only  string // the id of the only session in the store, except for copies; "" for all in dir
	key   []byte
	trust bool // also trust files that are not sealed with key

	mu     sync.Mutex // for the following
	read   map[string]sessionFile
	inputs map[string][]session.Entry
	runs   map[string]bool // the sessions that this process runs
	copies map[string]bool // made by this process
}

// sealLabel is the label of a session whose file is not sealed with the user's key. It is shown, but neither answered nor
// copied: anyone could have written its rules.
const sealLabel = "seal"

func notTrusted(id string) error {
	return fmt.Errorf("session %q: %w; read it, then start kitbag ui with --trust-session to trust its conversation and its rules", id, session.ErrUnsealed)
}

// checkSeal returns an error if the file of a session is not sealed with the user's key.
func (k *fileStore) checkSeal(ctx context.Context, id string) error {
	f, err := k.file(ctx, id)
	if err == nil && f.info.Labels[sealLabel] != "" {
		err = notTrusted(id)
	}
	return err
}

// A sessionFile is the content of a session file, which is read again when its size or info.Updated has changed.
type sessionFile struct {
	info session.Info
	size int64
	data json.RawMessage // the State, with the id of the file
	id   string          // of the State itself
	runs bool            // its events say that a process runs the session
}

var (
	_ session.Reader  = (*fileStore)(nil)
	_ session.Inbox   = (*fileStore)(nil)
	_ session.Watcher = (*fileStore)(nil)
)

func newFileStore(dir, only string) (*fileStore, error) {
	key, err := userKey()
	return &fileStore{dir: dir, only: only, key: key, read: map[string]sessionFile{},
		inputs: map[string][]session.Entry{}, runs: map[string]bool{}, copies: map[string]bool{}}, err
}

func (k *fileStore) path(id string) string { return filepath.Join(k.dir, id+".json") }

// has reports whether a session belongs to the store. Its file need not exist.
func (k *fileStore) has(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.only == "" || id == k.only || k.copies[id]
}

// Open opens a new file for a copy.
func (k *fileStore) Open(_ context.Context, id string) (session.Log, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(k.path(id)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %q: %w: a session file is opened by kitbag run --session and kitbag chat only", id, session.ErrConflict)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.copies[id] = true
	return &copyLog{k, id}, nil
}

// A copyLog is the log of a new session file. Its first record becomes the file.
type copyLog struct {
	store *fileStore
	id    string
}

func (c *copyLog) Load(context.Context) ([]session.Record, error) { return nil, nil }
func (c *copyLog) Close() error                                   { return nil }

// Append writes and seals the State, whose conversation and rules are from a sealed file.
func (c *copyLog) Append(ctx context.Context, rec session.Record) error {
	if rec.Labels[sealLabel] != "" { // a copy has the labels of its original
		return notTrusted(c.id)
	}
	f, err := os.OpenFile(c.store.path(c.id), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(rec.Data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = session.Seal(ctx, f.Name(), c.store.key)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Delete always fails.
func (k *fileStore) Delete(context.Context, string) error {
	return errors.New("session files are not deleted here; remove the file, and the directories next to it whose names begin with its name")
}

// List reads the files that have changed since they were last read.
func (k *fileStore) List(ctx context.Context, q session.Query) (session.Page, error) {
	entries, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the directory is created with the first session
		return session.Page{}, err
	}
	var infos []session.Info
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !e.Type().IsRegular() && k.only == "" || session.CheckID(id) != nil || !k.has(id) || q.ID != "" && q.ID != id {
			continue
		}
		f, err := k.file(ctx, id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		case err != nil && k.only == "":
			// It may be a file of another program. If not, the page of the session shows the error.
		case err != nil:
			return session.Page{}, err
		default:
			infos = append(infos, f.info)
		}
	}
	if err := ctx.Err(); err != nil {
		return session.Page{}, err
	}
	return q.Page(infos)
}

// Read returns the State as a record. The State at an older record is the newest one with fewer messages.
func (k *fileStore) Read(ctx context.Context, id string, seq int64) (session.Info, []session.Record, error) {
	if err := session.CheckID(id); err != nil {
		return session.Info{}, nil, err
	}
	if !k.has(id) {
		return session.Info{}, nil, fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	f, err := k.file(ctx, id)
	if err != nil {
		return session.Info{}, nil, err
	}
	data := f.data
	if seq != 0 && seq != f.info.Seq {
		if data, err = k.stateAt(ctx, id, f, seq); err != nil {
			return session.Info{}, nil, fmt.Errorf("session %q: %w", id, err)
		}
	}
	return f.info, []session.Record{{Seq: f.info.Seq, Whole: true, Data: data, Status: f.info.Status, Labels: f.info.Labels}}, nil
}

// stateAt returns the State of f with the messages that it had at a record of its events.
func (k *fileStore) stateAt(ctx context.Context, id string, f sessionFile, seq int64) (json.RawMessage, error) {
	store, _, ok := eventsOf(ctx, k.path(id), f.id)
	if !ok {
		return nil, fmt.Errorf("%w: a session file without events has only the newest State", session.ErrGone)
	}
	_, recs, err := store.(session.Reader).Read(ctx, f.id, seq)
	if err != nil {
		return nil, err
	}
	var at position
	if len(recs) == 0 || json.Unmarshal(recs[len(recs)-1].Data, &at) != nil {
		return nil, fmt.Errorf("record %d of its events was not written by this version of kitbag", seq)
	}
	st := new(agent.State)
	if err := st.UnmarshalJSON(f.data); err != nil {
		return nil, err
	}
	n := at.Messages
	switch all := len(st.Messages); {
	case at.Generation != st.Generation || n > all || n < 0:
		return nil, fmt.Errorf("%w: a compaction has replaced the messages of that time", session.ErrGone)
	case n == all:
		return f.data, nil
	case n > 0 && len(st.Messages[n-1].ToolCalls()) > 0:
		n++ // calls need their results
	}
	for _, m := range st.Messages[n:] {
		if u := m.Usage; u != nil {
			st.Usage.Add(message.Usage{Input: -u.Input, Output: -u.Output, Cached: -u.Cached, CacheWrite: -u.CacheWrite, Reasoning: -u.Reasoning})
		}
	}
	st.Messages = st.Messages[:n]
	return marshalWithout(st, "open", "away", "running", "run") // they are about the newest messages
}

// marshalWithout returns the JSON of a State without some members.
func marshalWithout(st *agent.State, names ...string) (json.RawMessage, error) {
	data, err := st.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	for _, name := range names {
		delete(members, name)
	}
	return json.Marshal(members)
}

// Watch yields the events of a session. It waits for the first one if the file has none.
func (k *fileStore) Watch(ctx context.Context, id string, after int64) iter.Seq2[session.Event, error] {
	return func(yield func(session.Event, error) bool) {
		for {
			if !k.has(id) {
				yield(session.Event{}, fmt.Errorf("session %q: %w", id, fs.ErrNotExist))
				return
			}
			f, err := k.file(ctx, id)
			if err == nil {
				if store, _, ok := eventsOf(ctx, k.path(id), f.id); ok {
					store.(session.Watcher).Watch(ctx, f.id, after)(yield)
					return
				}
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				yield(session.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// file returns the current content of a file.
func (k *fileStore) file(ctx context.Context, id string) (sessionFile, error) {
	stat, err := os.Stat(k.path(id))
	if err != nil {
		return sessionFile{}, err
	}
	k.mu.Lock()
	f, ok := k.read[id]
	inputs, runs := len(k.inputs[id]), k.runs[id]
	k.mu.Unlock()
	changed := !ok || !f.info.Updated.Equal(stat.ModTime()) || f.size != stat.Size()
	if changed {
		var labels map[string]string
		st, err := session.ReadFile(k.path(id), k.key)
		if unsealed := err; errors.Is(err, session.ErrUnsealed) {
			if st, err = session.ReadFile(k.path(id), nil); err == nil && st.ID == "" { // a file of another program
				err = unsealed
			}
			if !k.trust {
				labels = map[string]string{sealLabel: "missing or wrong"}
			}
		}
		if err != nil {
			return sessionFile{}, err
		}
		f = sessionFile{info: session.Info{ID: id, Updated: stat.ModTime(), Seq: max(stat.ModTime().UnixNano(), 1), Status: statusOf(st), Labels: labels},
			size: stat.Size(), id: st.ID}
		st.ID = id
		if f.data, err = st.MarshalJSON(); err != nil {
			return sessionFile{}, err
		}
	}
	if changed || f.runs {
		_, in, ok := eventsOf(ctx, k.path(id), f.id)
		f.info.Event, f.runs = in.Event, ok && in.Status == session.StatusWorking
		if ok && in.Status == session.StatusFailed && f.info.Status == session.StatusAbandoned {
			f.info.Status = session.StatusFailed
		}
		k.mu.Lock()
		k.read[id] = f
		k.mu.Unlock()
	}
	f.info.Inputs = inputs
	if runs || f.runs {
		f.info.Status = session.StatusWorking
	}
	return f, nil
}

// statusOf returns the status of a conversation that is not running.
func statusOf(st *agent.State) session.Status {
	switch {
	case len(st.Pending()) > 0:
		return session.StatusWaiting
	case st.Done():
		return session.StatusEnded
	case len(st.Messages) == 0:
		return ""
	}
	return session.StatusAbandoned
}

// Send stores an input until takeInputs is called.
func (k *fileStore) Send(ctx context.Context, id string, in session.Entry) (bool, error) {
	if err := k.checkSeal(ctx, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(k.inputs[id], func(e session.Entry) bool { return e.ID == in.ID }) {
		return false, nil
	}
	if err := in.Check(len(k.inputs[id])); err != nil {
		return false, err
	}
	in.Sent = time.Now()
	k.inputs[id] = append(k.inputs[id], in)
	return true, nil
}

func (k *fileStore) Inputs(_ context.Context, id string) ([]session.Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.inputs[id]), nil
}

func (k *fileStore) Input(_ context.Context, id, input string) (session.Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.inputs[id] {
		if e.ID == input {
			return e, nil
		}
	}
	return session.Entry{}, fmt.Errorf("input %q: %w", input, fs.ErrNotExist)
}

// takeInputs removes and returns the inputs that were sent to a session. If the agent does not accept an answer, its
// question is asked again.
func (k *fileStore) takeInputs(id string) (inputs []agent.Input) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.inputs[id] {
		var in struct {
			Confirm *event.Confirm   `json:"confirm"`
			Message *message.Message `json:"message"`
		}
		err := json.Unmarshal(e.Data, &in)
		switch {
		case err == nil && in.Confirm != nil:
			inputs = append(inputs, *in.Confirm)
		case err == nil && in.Message != nil:
			inputs = append(inputs, agent.Say("", in.Message.Blocks...))
		}
	}
	delete(k.inputs, id)
	return inputs
}

// beginRun marks a session as running until endRun is called.
func (k *fileStore) beginRun(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.runs[id] = true
}

func (k *fileStore) endRun(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.runs, id)
}
