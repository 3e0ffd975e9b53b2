package mcpclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/kitbag-go/kitbag/internal/replacefile"
)

// A loginFile is the Store of a login in OAuth.Dir: a file named after a hash of the server. Without a directory it keeps
// the login in memory.
type loginFile struct {
	path string

	mu     sync.Mutex
	memory []byte
}

// loginFile returns the Store for the server at the URL.
func (o *OAuth) loginFile(server string) *loginFile {
	if o.Dir == "" {
		return &loginFile{}
	}
	sum := sha256.Sum256([]byte(server))
	return &loginFile{path: filepath.Join(o.Dir, hex.EncodeToString(sum[:16])+".json")}
}

// LoggedIn reports whether Dir has tokens for the server at the URL. They may have expired.
func (o *OAuth) LoggedIn(server string) bool {
	data, err := o.loginFile(server).Load(context.Background())
	var g grant
	return err == nil && json.Unmarshal(data, &g) == nil && g.Access != ""
}

// Logout removes the tokens and the registration for the server at the URL from Dir. It does
// not notify the authorization server.
func (o *OAuth) Logout(server string) error {
	if o.Dir == "" {
		return nil
	}
	if err := os.Remove(o.loginFile(server).path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// EndLogin is like Logout, but keeps the list of scopes, so that the next login asks for all of them.
func (o *OAuth) EndLogin(server string) error {
	f, old := o.loginFile(server), grant{}
	data, err := f.Load(context.Background())
	if err != nil || json.Unmarshal(data, &old) != nil || old.Scope == "" {
		return o.Logout(server)
	}
	data, err = json.Marshal(grant{Issuer: old.Issuer, Scope: old.Scope})
	if err != nil {
		return err
	}
	return f.Save(context.Background(), data, false)
}

// Load returns the stored login, or nil.
func (f *loginFile) Load(context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return f.memory, nil
	}
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save stores a login.
func (f *loginFile) Save(_ context.Context, login []byte, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		f.memory = login
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return replacefile.Write(f.path, login, 0o600)
}

// Lock does nothing: if several programs share the file, each may ask the user to log in.
func (f *loginFile) Lock(context.Context) (unlock func(), err error) { return func() {}, nil }
