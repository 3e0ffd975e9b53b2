package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// suffix ends the names of a directory's session files.
const suffix = ".jsonl"

// Dir returns a store that keeps each session in a file of the directory, named after its id: JSON lines with
// checksums, to which records are only appended. So messages stay in the file until the session is deleted,
// even those that a compaction of the agent has replaced. Waiting inputs are in a second file of the session.
// The directory is created, with mode 0700, if it does not exist. Files have mode 0600.
//
// The store is an [Inbox], a [Watcher], which yields an event at most 100 ms after it was written, and a
// [Reader]. A watcher does not wait for the fsync of what it reads: if the machine loses power at that moment,
// it has yielded an event that is not stored. Listing sessions reads the end of each file; reading a session,
// or its inputs if some are waiting, reads the whole file. A session with a file that cannot be read is listed
// with its id and the time of the file only; reading it returns the error.
//
// Dir works on systems that have flock: Linux, macOS and the BSDs.
func Dir(path string) (Store, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("session directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("session directory: %w", err)
	}
	return &dir{root: root, followers: map[string]map[*follower]bool{}}, nil
}

type dir struct {
	root *os.Root

	mu        sync.Mutex
	followers map[string]map[*follower]bool // by the id of the session; not nil if this store has the session open
}

// Open creates a file to lock, which Close removes if nothing was stored.
func (d *dir) Open(ctx context.Context, id string) (Log, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	f, err := d.openLocked(id+suffix, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followers[id] = map[*follower]bool{}
	return &dirLog{dir: d, file: f, id: id}, nil
}

// openLocked opens a file and locks it. The name is resolved within the directory only: a symbolic link
// cannot lead outside of it.
func (d *dir) openLocked(name string, flag int) (*os.File, error) {
	return openLocked(name, d.root.Stat, func(name string) (*os.File, error) { return d.root.OpenFile(name, flag, 0o600) })
}

// openLocked opens a file and locks it. It opens the name again if the file was deleted or replaced before it was
// locked.
func openLocked(name string, stat func(string) (fs.FileInfo, error), open func(string) (*os.File, error)) (*os.File, error) {
	for {
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		ok, err := isNamed(f, stat, name)
		if ok {
			return f, nil
		}
		if err = errors.Join(err, release(f)); err != nil {
			return nil, err
		}
	}
}

// isNamed reports whether f is the file with this name. It fails if f is not a regular file.
func isNamed(f *os.File, stat func(string) (fs.FileInfo, error), name string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !opened.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", name)
	}
	named, err := stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// files returns the files of a session, or of all sessions if id is empty.
func (d *dir) files(id string) (entries []fs.DirEntry, err error) {
	if id == "" {
		return fs.ReadDir(d.root.FS(), ".")
	}
	for _, name := range []string{id + inboxSuffix, id + suffix} {
		if info, err := d.root.Lstat(name); err == nil {
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
	}
	return entries, nil
}

// List reads the end of each file.
func (d *dir) List(ctx context.Context, q Query) (Page, error) {
	entries, err := d.files(q.ID)
	if err != nil {
		return Page{}, err
	}
	var infos []Info
	listed := map[string]bool{}
	for _, e := range entries {
		id, isLog := strings.CutSuffix(e.Name(), suffix)
		if !isLog {
			id, _ = strings.CutSuffix(e.Name(), inboxSuffix)
		}
		// Other files in the directory are ignored.
		if id == e.Name() || listed[id] || CheckID(id) != nil || !e.Type().IsRegular() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return Page{}, err
		}
		listed[id] = true
		in, err := d.info(id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // an unreadable file must not hide the other sessions
			var file fs.FileInfo
			if file, err = e.Info(); err == nil {
				in = Info{ID: id, Updated: file.ModTime()}
			}
		}
		if err == nil { // otherwise the session was deleted in the meantime, or is not stored yet
			infos = append(infos, in)
		}
	}
	if err := ctx.Err(); err != nil {
		return Page{}, err
	}
	return q.Page(infos)
}

// info returns the Info of a session.
func (d *dir) info(id string) (Info, error) {
	inputs, err := d.countInputs(id)
	if err != nil {
		return Info{}, err
	}
	sum, err := d.summary(id)
	if err != nil {
		return Info{}, err
	}
	return d.infoOf(id, sum, inputs)
}

// infoOf makes the Info of a session from the summary of its file and the number of inputs in its inbox.
func (d *dir) infoOf(id string, sum summary, inputs int) (Info, error) {
	if sum.Seq == 0 && inputs == 0 {
		return Info{}, fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	in := sum.info(id)
	in.Inputs = max(inputs-sum.Consumed, 0)
	switch {
	case !in.Updated.IsZero():
	case sum.Seq == 0: // the session has only inputs
		entries, err := d.readInbox(id)
		if err != nil {
			return Info{}, err
		}
		if len(entries) > 0 {
			in.Updated = entries[0].Sent
		}
	default:
		stat, err := d.root.Stat(id + suffix)
		if err != nil {
			return Info{}, err
		}
		in.Updated = stat.ModTime()
	}
	if in.Status == StatusWorking {
		open, err := d.isOpen(id)
		if err != nil {
			return Info{}, err
		}
		if !open {
			in.Status = StatusAbandoned
		}
	}
	return in, nil
}

// isOpen reports whether a writer has the session open. The only way to see a lock is to try to take it; a writer that
// opens the session at that moment retries.
func (d *dir) isOpen(id string) (bool, error) {
	f, err := d.openRegular(id + suffix)
	if err != nil {
		return false, err
	}
	switch err := tryLock(f); {
	case err == nil:
		return false, release(f)
	case errors.Is(err, ErrConflict):
		return true, f.Close()
	default:
		return false, errors.Join(err, f.Close())
	}
}

// summary returns the summary of a session, empty if it has no record.
func (d *dir) summary(id string) (summary, error) {
	f, err := d.openRegular(id + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return summary{}, nil
	}
	if err != nil {
		return summary{}, err
	}
	var sum summary
	ok, err := readSummary(f, &sum)
	if err == nil && !ok {
		var l *logFile
		if l, err = readLog(f, id, 0); err == nil {
			sum = l.summary
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return summary{}, fmt.Errorf("session %q: %w", id, err)
	}
	return sum, nil
}

// readLog reads the file of a session up to record seq, or all of it if seq is 0. A missing file has no records.
func (d *dir) readLog(id string, seq int64) (*logFile, error) {
	f, err := d.openRegular(id + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return parseLog(nil, id, seq)
	}
	if err != nil {
		return nil, err
	}
	l, err := readLog(f, id, seq)
	return l, errors.Join(err, f.Close())
}

func (d *dir) openRegular(name string) (*os.File, error) {
	return openIfRegular(name, d.root.Stat, d.root.Open)
}

func (d *dir) Read(ctx context.Context, id string, seq int64) (Info, []Record, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return Info{}, nil, err
	}
	inputs, err := d.countInputs(id)
	if err != nil {
		return Info{}, nil, err
	}
	last, err := d.readLog(id, 0)
	if err != nil {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	in, err := d.infoOf(id, last.summary, inputs)
	switch {
	case err != nil:
		return Info{}, nil, err
	case seq < 0 || seq > last.Seq:
		return Info{}, nil, noRecord(id, seq, last.Seq)
	case seq == 0 || seq == last.Seq:
		return in, last.recs, nil
	}
	l, err := d.readLog(id, seq)
	if err != nil {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	return in, l.recs, nil
}

// Delete locks the session file first: otherwise a writer that has the session open would write to a deleted file. It
// removes the inbox before the session file, since without that file all inputs would count as waiting.
func (d *dir) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	if err := d.delete(ctx, id); err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	return nil
}

func (d *dir) delete(ctx context.Context, id string) error {
	log, openErr := d.openLocked(id+suffix, os.O_RDWR)
	if openErr != nil && !errors.Is(openErr, fs.ErrNotExist) {
		return openErr
	}
	inbox, err := d.waitLocked(ctx, id+inboxSuffix, os.O_RDWR)
	if err == nil {
		err = errors.Join(d.root.Remove(id+inboxSuffix), release(inbox))
		openErr = nil // there was an inbox to delete
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if log != nil {
		if err == nil {
			err = d.root.Remove(id + suffix)
		}
		err = errors.Join(err, release(log))
	}
	if err == nil {
		err = openErr
	}
	return errors.Join(err, syncDir(d.root.Open(".")))
}

// syncDir syncs a directory, so that the names in it survive a crash. Its arguments are the results of os.Open.
func syncDir(d *os.File, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
