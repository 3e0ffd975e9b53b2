package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sqlite"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// openStore opens the store that --store names; "" means the conversations of the current directory. The caller calls
// closeStore.
func openStore(ctx context.Context, name string) (_ session.Store, closeStore func() error, _ error) {
	noClose := func() error { return nil }
	if name == "" {
		dir, _, err := keptSessions()
		if err != nil {
			return nil, nil, err
		}
		store, err := newFileStore(dir, "")
		return store, noClose, err
	}
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		store, err := pgsession.Open(ctx, name, pgsession.Options{})
		if err != nil {
			return nil, nil, err
		}
		return store, store.Close, nil
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w; name a directory, a file, or the URL of a Postgres database", err)
	case info.IsDir():
		store, err := dirStore(name)
		return store, noClose, err
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s is not a regular file", name)
	}
	isDatabase, err := isSQLite(name)
	if err != nil {
		return nil, nil, err
	}
	if isDatabase {
		store, err := sqlite.Open(name)
		if err != nil {
			return nil, nil, err
		}
		return store, store.Close, nil
	}
	id, ok := strings.CutSuffix(filepath.Base(name), ".json")
	if !ok || session.CheckID(id) != nil {
		return nil, nil, fmt.Errorf("%s is neither a SQLite database nor a session file, whose name is letters and digits with .json at the end", name)
	}
	store, err := newFileStore(filepath.Dir(name), id)
	return store, noClose, err
}

// dirStore opens a directory that has either the logs of session.Dir or session files.
func dirStore(name string) (session.Store, error) {
	logs, err := filepath.Glob(filepath.Join(escapeGlob(name), "*.jsonl"))
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(name), "*.json"))
	if err != nil {
		return nil, err
	}
	if len(logs) == 0 && len(files) > 0 {
		return newFileStore(name, "")
	}
	return session.Dir(name)
}

// escapeGlob returns the pattern that matches only the path itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// isSQLite reports whether a file begins like a SQLite database.
func isSQLite(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return bytes.Equal(head[:n], []byte("SQLite format 3\x00")), err
}
