package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// sessionSuffix ends the names of session files.
const sessionSuffix = ".jsonl"

// Dir returns a store that keeps each session in a file of the directory, named after its id: JSON lines with
// checksums, to which records are only appended. So messages stay in the file until the session is deleted,
// even those that a compaction of the agent has replaced. A second file of the session has the inputs.
// The directory is created, with mode 0700, if it does not exist. Files have mode 0600.
//
// The store is an [Inbox], a [Watcher], which yields an event at most 100 ms after it was written, and a
// [Reader]. A watcher does not wait for the fsync of what it reads: if the machine loses power at that moment,
// the watcher may have yielded an event that is lost. Listing sessions reads the end of each file; reading a session,
// or its inputs if some are waiting, reads the whole file. A session with a file that cannot be read is listed
// with only its id and the file's modification time; reading that session returns the error.
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
	followers map[string]map[*follower]bool // by the id of the session; only of sessions that this store has open
}

// Open creates a file to lock, which Close removes if nothing was stored.
func (d *dir) Open(ctx context.Context, id string) (Log, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	f, err := d.openLocked(id+sessionSuffix, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.followers[id] = map[*follower]bool{}
	return &dirLog{dir: d, file: f, id: id}, nil
}

// openLocked opens and locks a file of the directory. If the file was deleted or replaced before it was locked,
// openLocked opens the name again. A symbolic link cannot lead outside of the directory.
func (d *dir) openLocked(name string, flag int) (*os.File, error) {
	for {
		f, err := d.root.OpenFile(name, flag, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		named, err := d.isNamed(f, name)
		if named {
			return f, nil
		}
		if err = errors.Join(err, release(f)); err != nil {
			return nil, err
		}
	}
}

// isNamed reports whether name still names the open file f. It fails if f is not a regular file.
func (d *dir) isNamed(f *os.File, name string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !opened.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", name)
	}
	named, err := d.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// files returns the files of a session, or all files of the directory if id is empty.
func (d *dir) files(id string) (entries []fs.DirEntry, err error) {
	if id == "" {
		return fs.ReadDir(d.root.FS(), ".")
	}
	for _, name := range []string{id + inboxSuffix, id + sessionSuffix} {
		if info, err := d.root.Lstat(name); err == nil { // otherwise there is no such file, or the id is invalid
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
	}
	return entries, nil
}

// List reads the end of each file.
func (d *dir) List(ctx context.Context, q Query) (Page, error) {
	entries, err := d.files(q.ID)
	if err := errors.Join(ctx.Err(), err); err != nil {
		return Page{}, err
	}
	var infos []Info
	listed := map[string]bool{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		id := strings.TrimSuffix(e.Name(), ext)
		if ext != sessionSuffix && ext != inboxSuffix || listed[id] || CheckID(id) != nil || !e.Type().IsRegular() {
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
	return q.Page(infos)
}

// info reads the Info of a session.
func (d *dir) info(id string) (Info, error) {
	sent, err := d.countSent(id)
	if err != nil {
		return Info{}, err
	}
	sum, err := d.sessionSummary(id)
	if err != nil {
		return Info{}, err
	}
	return d.newInfo(id, sum, sent)
}

// newInfo makes the Info of a session from the summary of its file and the number of inputs that were ever sent to it.
func (d *dir) newInfo(id string, sum summary, sent int) (Info, error) {
	if sum.Seq == 0 && sent == 0 {
		return Info{}, fmt.Errorf("session %q: %w", id, fs.ErrNotExist)
	}
	in := sum.info(id)
	in.Inputs = max(sent-sum.Consumed, 0) // sum is newer than sent, and may count more inputs
	switch {
	case sum.Seq == 0: // the session has only inputs
		entries, err := d.readInbox(id)
		if err != nil {
			return Info{}, err
		}
		if len(entries) > 0 { // otherwise the session was deleted in the meantime
			in.Updated = entries[0].Sent
		}
	case in.Updated.IsZero(): // the file has no summaries: an older program wrote it
		stat, err := d.root.Stat(id + sessionSuffix)
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

// isOpen reports whether a writer has the session open. The only way to detect a lock is to try to lock the file; a
// writer that opens the session at that moment retries.
func (d *dir) isOpen(id string) (bool, error) {
	f, err := d.openRegular(id + sessionSuffix)
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

// sessionSummary returns the summary of a session, empty if the session has no record.
func (d *dir) sessionSummary(id string) (summary, error) {
	f, err := d.openRegular(id + sessionSuffix)
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
		if l, err = readLogFile(f, id, 0); err == nil {
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
	f, err := d.openRegular(id + sessionSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return parseLog(nil, id, seq)
	}
	if err != nil {
		return nil, err
	}
	l, err := readLogFile(f, id, seq)
	return l, errors.Join(err, f.Close())
}

// openRegular opens a file for reading, unless it is a pipe or another special file: opening a pipe may block.
func (d *dir) openRegular(name string) (*os.File, error) {
	info, err := d.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return d.root.Open(name)
}

func (d *dir) Read(ctx context.Context, id string, seq int64) (Info, []Record, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return Info{}, nil, err
	}
	sent, err := d.countSent(id)
	if err != nil {
		return Info{}, nil, err
	}
	newest, err := d.readLog(id, 0)
	if err != nil {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	in, err := d.newInfo(id, newest.summary, sent)
	switch {
	case err != nil:
		return Info{}, nil, err
	case seq < 0 || seq > newest.Seq:
		return Info{}, nil, noRecord(id, seq, newest.Seq)
	case seq == 0 || seq == newest.Seq:
		return in, newest.recs, nil
	}
	older, err := d.readLog(id, seq)
	if err != nil {
		return Info{}, nil, fmt.Errorf("session %q: %w", id, err)
	}
	return in, older.recs, nil
}

func (d *dir) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	if err := d.delete(ctx, id); err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	return nil
}

// delete locks the session file first: otherwise a writer that has the session open would write to a deleted file. It
// removes the inbox before the session file, since without the session file all inputs would count as waiting.
func (d *dir) delete(ctx context.Context, id string) error {
	file, fileErr := d.openLocked(id+sessionSuffix, os.O_RDWR)
	if fileErr != nil && !errors.Is(fileErr, fs.ErrNotExist) {
		return fileErr
	}
	inbox, err := d.waitLocked(ctx, id+inboxSuffix, os.O_RDWR)
	if err == nil {
		err = errors.Join(d.root.Remove(id+inboxSuffix), release(inbox))
	} else if errors.Is(err, fs.ErrNotExist) {
		err = fileErr // if neither file exists, the session does not exist
	}
	if file != nil {
		if err == nil {
			err = d.root.Remove(id + sessionSuffix)
		}
		err = errors.Join(err, release(file))
	}
	return errors.Join(err, syncDir(d.root.Open(".")))
}

// syncDir syncs a directory, so that new and removed names survive a crash. The arguments are the results of os.Open.
func syncDir(d *os.File, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
