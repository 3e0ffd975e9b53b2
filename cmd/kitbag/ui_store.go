package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/session/sqlite"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// openStore opens the store that --store names; "" means the conversations of the current
// directory. With trust it seals the conversations that are not sealed with the user's key. The
// caller calls closeStore.
func openStore(
	ctx context.Context, name string, trust bool,
) (_ session.Store, closeStore func() error, _ error) {
	noClose := func() error { return nil }
	if name == "" {
		dir, err := keptDir()
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err != nil {
			return nil, nil, err
		}
		store, err := newOwnStore(ctx, dir, "", trust)
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
	if err == nil && info.IsDir() {
		store, err := dirStore(ctx, name, trust)
		return store, noClose, err
	}
	p, placeErr := placeOf(name)
	if placeErr == nil && p.exists() {
		store, err := newOwnStore(ctx, p.dir, p.id, trust)
		return store, noClose, err
	}
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w; "+
			"name a directory, a session, a file, or the URL of a Postgres database", err)
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
	return nil, nil, fmt.Errorf("%s is neither a SQLite database nor a session file, "+
		"whose name is letters and digits with .jsonl at the end", name)
}

// exists reports whether the session has a file, which an older version may have written.
func (p place) exists() bool {
	return !modTime(p.file()).IsZero() || !modTime(filepath.Join(p.dir, p.id+oldSuffix)).IsZero()
}

// dirStore opens a directory of the user's conversations, or of a program that uses session.Dir.
// They are the user's if the last one is sealed, with whatever key, or if all are files of older
// versions.
func dirStore(ctx context.Context, name string, trust bool) (session.Store, error) {
	logs, err := filepath.Glob(filepath.Join(escapeGlob(name), "*"+sessionSuffix))
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(name), "*"+oldSuffix))
	if err != nil {
		return nil, err
	}
	isOwn := len(files) > 0
	if len(logs) > 0 {
		// A session of another program that contains this by chance is only shown.
		last := slices.MaxFunc(logs, func(a, b string) int { return modTime(a).Compare(modTime(b)) })
		data, err := os.ReadFile(last)
		if err != nil {
			return nil, err
		}
		isOwn = bytes.Contains(data, []byte(`"kitbag_seal":`))
	}
	if isOwn {
		return newOwnStore(ctx, name, "", trust)
	}
	return session.Dir(name)
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
