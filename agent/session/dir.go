package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// suffix ends the names of a directory's session files.
const suffix = ".jsonl"

// Dir returns a store that keeps each session in a file of the directory,
// named after its id: JSON lines that are only ever appended to, each with a
// checksum. So what was said stays in the file, also when the agent has
// compacted it away, until the session is deleted. The directory is made, with
// mode 0700, if it does not exist. Files have mode 0600.
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
	return &dir{root}, nil
}

type dir struct{ root *os.Root }

// Open makes the file, so that there is something to lock. Close removes it again
// if nothing was stored.
func (d *dir) Open(ctx context.Context, id string) (Log, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	f, err := d.openLocked(id+suffix, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", id, err)
	}
	return &dirLog{root: d.root, file: f, id: id}, nil
}

// openLocked opens a file and locks it. The name is looked up below the directory
// only, so that a link in it leads nowhere else.
func (d *dir) openLocked(name string, flag int) (*os.File, error) {
	for {
		f, err := d.root.OpenFile(name, flag, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		ok, err := isNamed(f, d.root.Stat, name)
		if ok {
			return f, nil
		}
		if err = errors.Join(err, release(f)); err != nil {
			return nil, err
		}
		// It was deleted before the lock was taken: the name is free again.
	}
}

// isNamed reports whether f is the file that stat finds under name. It fails
// if f is something else than a file.
func isNamed(f *os.File, stat func(string) (fs.FileInfo, error), name string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	if !mine.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", name)
	}
	named, err := stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, named), err
}

func (d *dir) List(ctx context.Context) ([]Info, error) {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var infos []Info
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		// Whatever else lies in the directory is not ours to tell of.
		if !ok || CheckID(id) != nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted meanwhile
		case err != nil:
			return nil, err
		case info.Size() > int64(len(header(id))): // else there is no record yet
			infos = append(infos, Info{ID: id, Updated: info.ModTime()})
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.ID, b.ID) })
	return infos, ctx.Err()
}

// Delete takes the lock first: whoever has the session open would go on writing to
// a file without a name.
func (d *dir) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	f, err := d.openLocked(id+suffix, os.O_RDWR)
	if err == nil {
		err = errors.Join(d.root.Remove(id+suffix), syncDir(d.root.Open(".")), release(f))
	}
	if err != nil {
		return fmt.Errorf("delete session %q: %w", id, err)
	}
	return nil
}

// syncDir makes sure that the names in a directory, which was opened with err,
// are on the disk.
func syncDir(d *os.File, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// dirLog is a session file that is open and locked.
type dirLog struct {
	root *os.Root
	file *os.File // nil when closed
	id   string
	end  *logEnd // where to go on; nil until the file was read
	err  error   // of a write that failed: what is on the disk is unknown
}

// Load reads up to the size that the file has now. Nobody else writes to it.
func (l *dirLog) Load(ctx context.Context) ([]Record, error) {
	if l.file == nil {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.NewSectionReader(l.file, 0, info.Size()))
	if err != nil {
		return nil, err
	}
	recs, end, err := parseLog(data, l.id)
	if err != nil {
		return nil, err
	}
	l.end = &end
	return recs, nil
}

// Append takes nothing more once a write has failed: after a failed fsync a system
// may count pages as written that are not.
func (l *dirLog) Append(ctx context.Context, rec Record) error {
	switch {
	case l.file == nil:
		return errClosed
	case l.err != nil:
		return fmt.Errorf("an earlier write failed; open the session again: %w", l.err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if l.end == nil {
		if _, err := l.Load(ctx); err != nil {
			return err
		}
	}
	if err := checkNext(rec, l.end.seq); err != nil {
		return err
	}
	line, err := appendRecord(nil, rec)
	if err != nil {
		return err
	}
	if ok, err := l.inPlace(); err != nil || !ok {
		return errors.Join(fmt.Errorf("%w: its file was removed or replaced", ErrConflict), err)
	}
	if l.err = l.write(line); l.err != nil {
		return l.err
	}
	*l.end = logEnd{seq: rec.Seq}
	return nil
}

// inPlace reports whether the file is still the one that has its name.
func (l *dirLog) inPlace() (bool, error) { return isNamed(l.file, l.root.Stat, l.id+suffix) }

// write appends a line and returns when it is on the disk.
func (l *dirLog) write(line []byte) error {
	switch {
	case l.end.fresh:
		if err := l.file.Truncate(0); err != nil { // a header that was cut off
			return err
		}
		line = append(header(l.id), line...)
	case l.end.torn: // its remains stay, as a line with a wrong checksum
		line = append([]byte("\n"), line...)
	}
	if _, err := l.file.Write(line); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	if l.end.fresh { // a new name is no more on the disk than what it names
		return syncDir(l.root.Open("."))
	}
	return nil
}

func (l *dirLog) Close() error {
	if l.file == nil {
		return nil
	}
	var errs []error
	if info, err := l.file.Stat(); err == nil && info.Size() == 0 { // nothing was stored
		if ok, err := l.inPlace(); ok {
			errs = append(errs, l.root.Remove(l.id+suffix))
		} else {
			errs = append(errs, err)
		}
	}
	errs = append(errs, release(l.file))
	l.file = nil
	return errors.Join(errs...)
}
