package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/agent"
)

// session is a State that may live in a file.
type session struct {
	agent.State
	path string // "" for one that ends with the program
}

// openSession loads the session at path; a missing file is a new one. A file
// that cannot be read is an error and stays as it is.
func openSession(path string) (*session, error) {
	s := &session{path: path}
	if path == "" {
		return s, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("session %s: its folder: %w", path, err)
		}
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := json.Unmarshal(data, &s.State); err != nil {
		return nil, fmt.Errorf("%s was left as it is: %w", path, err)
	}
	return s, nil
}

// save writes the session so that a crash leaves the old file or the new one.
// It may hold what tools read, so it is for its owner only.
func (s *session) save(_ context.Context, st *agent.State) (err error) {
	if s.path == "" {
		return nil
	}
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.path), ".kitbag-session-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), s.path)
}

// results returns where tool results are kept that are too long for the model:
// beside the session's file, or until the end of the program.
func (s *session) results() (dir agent.ResultDir, remove func() error, err error) {
	if s.path != "" {
		return agent.ResultDir(s.path + ".results"), func() error { return nil }, nil
	}
	tmp, err := os.MkdirTemp("", "kitbag-results-")
	return agent.ResultDir(tmp), func() error { return os.RemoveAll(tmp) }, err
}
