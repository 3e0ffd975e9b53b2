package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/agent"
)

// File opens the session in one file: the JSON of the whole State, which each Save replaces atomically, with
// mode 0600. A missing file is a new session, and is created by the first Save. A file that cannot be read, is
// not a session, or was written by a newer version ([agent.ErrNewerState]) is an error and stays unchanged. If
// path is a link, the file that it points to is replaced.
//
// While the session is open, opening the file again, in this or another process, fails with [ErrConflict]. A
// process that is killed during a Save leaves a file named .kitbag-session-… in the same directory, which may
// be removed. File works on the same systems as [Dir].
func File(path string) (*Session, error) { return openFile(path, nil) }

// SealedFile is [File] for a file that only programs with the key can write. Each Save adds a seal (HMAC-SHA256) of
// the whole file, and opening a file whose seal is missing or wrong fails with [ErrUnsealed]. The seal does not
// cover the file's name or age: anyone who can write to the directory can replace it with an older file, or with
// another one sealed with the same key. Unlike [agent.Config].Key it does not cover the policy, which may be
// different each time. Key must have at least 16 bytes, from crypto/rand.
func SealedFile(path string, key []byte) (*Session, error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("session %s: %w", path, err)
	}
	return openFile(path, bytes.Clone(key)) // the caller may erase its key
}

// Seal seals the current file at path, so that [SealedFile] opens it. Seal checks neither who wrote the file nor what is
// in it: use it only for a file whose conversation and rules you trust.
func Seal(ctx context.Context, path string, key []byte) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("session %s: %w", path, err)
	}
	s, err := File(path)
	if err != nil {
		return err
	}
	s.keeper.(*fileKeeper).key = key
	return errors.Join(s.Save(ctx, s.State), s.Close())
}

func openFile(path string, key []byte) (*Session, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil { // it fails for a new session
		path = target
	}
	k := &fileKeeper{path: path, key: key}
	st, err := k.open()
	if errors.Is(err, fs.ErrNotExist) { // the directory is missing; a missing file is a new session
		return nil, errors.Join(fmt.Errorf("session %s: %w; create the directory first", path, err), k.close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("session %s was left unchanged: %w", path, err), k.close())
	}
	return &Session{State: st, keeper: k}, nil
}

// A fileKeeper stores a State in one file. A new file is locked before it replaces the old one, so that the file
// at path is always locked.
type fileKeeper struct {
	path string
	key  []byte   // nil if the file is not sealed
	file *os.File // the locked file; nil if it does not exist yet
}

// open opens and locks the file, and returns its State, or a new State if the file does not exist.
func (k *fileKeeper) open() (*agent.State, error) {
	f, err := openAndLock(k.path, os.Stat, openRegular)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(filepath.Dir(k.path)) // without the directory the first save would fail
		return new(agent.State), err
	}
	if err != nil {
		return nil, err
	}
	k.file = f
	data, err := io.ReadAll(f) // not os.ReadFile: the path may name another file now
	if err != nil {
		return nil, err
	}
	return decodeFile(data, k.key)
}

// decodeFile returns the State from the content of a file. If key is not nil, it checks the seal before it parses the
// content.
func decodeFile(data, key []byte) (*agent.State, error) {
	if key != nil {
		if err := checkSeal(data, key); err != nil {
			return nil, err
		}
	}
	st := new(agent.State)
	if err := json.Unmarshal(data, st); err != nil {
		return nil, err
	}
	return st, nil
}

func openRegular(path string) (*os.File, error) { return openIfRegular(path, os.Stat, os.Open) }

// openIfRegular opens a file for reading, unless it is a pipe or another special file: opening a pipe may block.
func openIfRegular(name string, stat func(string) (fs.FileInfo, error), open func(string) (*os.File, error)) (*os.File, error) {
	info, err := stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return open(name)
}

// save writes a new file and gives it the name of the old file, so that a reader, even after a crash, finds either the
// old content or the new. It syncs the directory last, because the name is stored there.
func (k *fileKeeper) save(_ context.Context, st *agent.State, _ map[string]string) error {
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	if k.key != nil {
		data = addSeal(data, k.key)
	}
	if k.file != nil {
		if named, err := isNamed(k.file, os.Stat, k.path); err != nil || !named {
			return errors.Join(fmt.Errorf("%w: its file was removed or replaced", ErrConflict), err)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(k.path), ".kitbag-session-*") // mode 0600
	if err != nil {
		return k.writeError(err)
	}
	if err := k.replace(f, append(data, '\n')); err != nil {
		return errors.Join(k.writeError(err), f.Close(), os.Remove(f.Name()))
	}
	err = k.close() // the old file
	k.file = f
	return errors.Join(err, syncDir(os.Open(filepath.Dir(k.path))))
}

// writeError names the session file instead of the temporary file, whose name differs in each save.
func (k *fileKeeper) writeError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("write %s: %w", k.path, err)
}

// replace writes the content to f and replaces the session file with it.
func (k *fileKeeper) replace(f *os.File, data []byte) error {
	if err := lock(f); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if k.file != nil {
		return os.Rename(f.Name(), k.path)
	}
	err := os.Link(f.Name(), k.path) // unlike os.Rename, os.Link fails if the file exists
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: another process has created its file in the meantime", ErrConflict)
	}
	if err != nil {
		return err
	}
	return os.Remove(f.Name())
}

func (k *fileKeeper) close() error {
	if k.file == nil {
		return nil
	}
	err := release(k.file)
	k.file = nil
	return err
}
