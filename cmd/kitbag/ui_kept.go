package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
)

// A keptStore shows session files, which are sealed with the user's key, as a session.Store. They have no events,
// and are opened by an agent only. Answers stay in memory until the agent is given them.
type keptStore struct {
	dir  string
	only string // the id of the only session that it has; "" for all in dir
	key  []byte

	mu     sync.Mutex // for the following
	read   map[string]keptFile
	inputs map[string][]session.Entry
	runs   map[string]bool
}

// A keptFile is what was read of a file when it had this time and size.
type keptFile struct {
	info session.Info
	size int64
	data json.RawMessage // the State
}

var (
	_ session.Reader = (*keptStore)(nil)
	_ session.Inbox  = (*keptStore)(nil)
)

func newKeptStore(dir, only string) (*keptStore, error) {
	key, err := userKey()
	return &keptStore{dir: dir, only: only, key: key, read: map[string]keptFile{},
		inputs: map[string][]session.Entry{}, runs: map[string]bool{}}, err
}

// path returns the file of a session.
func (k *keptStore) path(id string) string { return filepath.Join(k.dir, id+".json") }

// Open fails: what may write to the file is "kitbag run".
func (k *keptStore) Open(context.Context, string) (session.Log, error) {
	return nil, errors.New("a session file is opened by kitbag run --session and kitbag chat only")
}

// Delete fails, too.
func (k *keptStore) Delete(context.Context, string) error {
	return errors.New("remove the session file, and the directory of its results if there is one")
}

// List reads the files that have changed since they were last read.
func (k *keptStore) List(ctx context.Context, q session.Query) (session.Page, error) {
	entries, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was kept yet
		return session.Page{}, err
	}
	var infos []session.Info
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !e.Type().IsRegular() || session.CheckID(id) != nil || k.only != "" && id != k.only {
			continue
		}
		f, err := k.file(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime
		case err != nil && k.only == "":
			// Other programs have files of this name; the error is on the page of the session.
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

// Read returns the State as a record. There is no older one.
func (k *keptStore) Read(_ context.Context, id string, seq int64) (session.Info, []session.Record, error) {
	if err := session.CheckID(id); err != nil {
		return session.Info{}, nil, err
	}
	if k.only != "" && id != k.only {
		return session.Info{}, nil, fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	f, err := k.file(id)
	switch {
	case err != nil:
		return session.Info{}, nil, err
	case seq != 0 && seq != f.info.Seq:
		return session.Info{}, nil, fmt.Errorf("session %q: %w: a file has the newest State only", id, session.ErrGone)
	}
	return f.info, []session.Record{{Seq: f.info.Seq, Whole: true, Data: f.data, Status: f.info.Status}}, nil
}

// file returns a file as it is now.
func (k *keptStore) file(id string) (keptFile, error) {
	stat, err := os.Stat(k.path(id))
	if err != nil {
		return keptFile{}, err
	}
	k.mu.Lock()
	f, ok := k.read[id]
	f.info.Inputs = len(k.inputs[id])
	runs := k.runs[id]
	k.mu.Unlock()
	if !ok || !f.info.Updated.Equal(stat.ModTime()) || f.size != stat.Size() {
		st, err := session.ReadFile(k.path(id), k.key)
		if err != nil {
			return keptFile{}, err
		}
		inputs := f.info.Inputs
		f.info = session.Info{ID: id, Updated: stat.ModTime(), Seq: max(stat.ModTime().UnixNano(), 1), Status: statusOf(st), Inputs: inputs}
		f.size = stat.Size()
		if f.data, err = stateAs(st, id); err != nil {
			return keptFile{}, err
		}
		k.mu.Lock()
		k.read[id] = f
		k.mu.Unlock()
	}
	if runs {
		f.info.Status = session.StatusWorking
	}
	return f, nil
}

// stateAs returns the JSON of a State under the id of its file. The State has an id of its own.
func stateAs(st *agent.State, id string) (json.RawMessage, error) {
	data, err := st.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	if members["id"], err = json.Marshal(id); err != nil {
		return nil, err
	}
	return json.Marshal(members)
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

// Send keeps an answer until take.
func (k *keptStore) Send(_ context.Context, id string, in session.Entry) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(k.inputs[id], func(e session.Entry) bool { return e.ID == in.ID }) {
		return false, nil
	}
	if err := session.CheckEntry(in, len(k.inputs[id])); err != nil {
		return false, err
	}
	in.Sent = time.Now()
	k.inputs[id] = append(k.inputs[id], in)
	return true, nil
}

func (k *keptStore) Inputs(_ context.Context, id string) ([]session.Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.inputs[id]), nil
}

func (k *keptStore) Input(_ context.Context, id, input string) (session.Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.inputs[id] {
		if e.ID == input {
			return e, nil
		}
	}
	return session.Entry{}, fmt.Errorf("input %q: %w", input, fs.ErrNotExist)
}

// take removes and returns the answers that were sent to a session, which runs until the caller calls done. If its
// agent refuses them, the question is asked again.
func (k *keptStore) take(id string) (inputs []agent.Input) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.inputs[id] {
		var in struct {
			Confirm *event.Confirm `json:"confirm"`
		}
		if json.Unmarshal(e.Data, &in) == nil && in.Confirm != nil {
			inputs = append(inputs, *in.Confirm)
		}
	}
	delete(k.inputs, id)
	k.runs[id] = true
	return inputs
}

func (k *keptStore) done(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.runs, id)
}
