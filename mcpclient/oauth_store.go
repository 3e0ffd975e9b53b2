package mcpclient

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Grants are files named after a hash of server and issuer. A file named after the server alone has the issuer
// that was used last.

// path returns the name of the file for the parts.
func (l *login) path(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return filepath.Join(l.cfg.Dir, hex.EncodeToString(sum[:16])+".json")
}

// store returns a login that can load and remove what is stored for a server.
func (o *OAuth) store(server string) (*login, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("the URL of the server: %w", err)
	}
	return &login{cfg: *o, server: u}, nil
}

// LoggedIn reports whether Dir has tokens for the server at the URL. They may have expired.
func (o *OAuth) LoggedIn(server string) bool {
	l, err := o.store(server)
	return err == nil && l.load() != nil
}

// Logout removes the tokens and the registration for the server at the URL from Dir. It does
// not notify the authorization server.
func (o *OAuth) Logout(server string) error {
	l, err := o.store(server)
	if err != nil || o.Dir == "" {
		return err
	}
	issuer, err := os.ReadFile(l.path(l.server.String()))
	if err != nil {
		return ignoreMissing(err)
	}
	// Remove the file with the issuer last: it is needed to find the other file.
	if err := ignoreMissing(os.Remove(l.path(l.server.String(), string(issuer)))); err != nil {
		return err
	}
	return ignoreMissing(os.Remove(l.path(l.server.String())))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// load returns the grant that was used last, or nil.
func (l *login) load() *grant {
	if l.cfg.Dir == "" {
		return nil
	}
	issuer, err := os.ReadFile(l.path(l.server.String()))
	if err != nil {
		return nil
	}
	data, err := os.ReadFile(l.path(l.server.String(), string(issuer)))
	g := &grant{}
	if err != nil || json.Unmarshal(data, g) != nil || g.Issuer != string(issuer) || g.Access == "" {
		return nil
	}
	return g
}

// save stores the grant.
func (l *login) save(g *grant) error {
	if l.cfg.Dir == "" {
		return nil
	}
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("store the token: %w", err)
	}
	server := l.server.String()
	if old, err := os.ReadFile(l.path(server)); err == nil && string(old) != g.Issuer {
		_ = os.Remove(l.path(server, string(old))) // it could not be found any more
	}
	if err := writePrivate(l.path(server, g.Issuer), data); err != nil {
		return fmt.Errorf("store the token: %w", err)
	}
	if err := writePrivate(l.path(server), []byte(g.Issuer)); err != nil {
		return fmt.Errorf("store the token: %w", err)
	}
	return nil
}

// writePrivate replaces a file atomically by one that only the user may read.
func writePrivate(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".private-*") // has mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
