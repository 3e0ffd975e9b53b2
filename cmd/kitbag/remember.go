package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// A memory stores a server's groups between runs, in the user's cache, so that they can be
// listed before the server is started. Without a cache a server is one group.
type memory struct {
	Groups []remembered `json:"groups"` // empty if the server has none

	path string
	mu   sync.Mutex
	last string // the content of the file
}

// A remembered is what the model is shown of a closed group, without its server.
type remembered struct {
	Name        string   `json:"name"` // SERVER/GROUP
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Parents     []string `json:"parents,omitempty"`
}

// maxMemory is the size of the largest file, in bytes, and maxGroups how many groups of a server
// are used; tools of further ones are in the group of the rest.
const (
	maxMemory = 1 << 20
	maxGroups = 100
)

// recall returns the stored groups of the server. A server with another command or address is
// another server.
func recall(cfg mcpclient.Server) *memory {
	m := &memory{}
	dir, err := os.UserCacheDir()
	if err != nil {
		return m
	}
	parts := []string{cfg.Name}
	switch t := cfg.Transport.(type) {
	case mcpclient.HTTP:
		parts = append(parts, t.URL)
	case mcpclient.Command:
		parts = append(append(parts, t.Dir, t.Path), t.Args...)
	}
	key := strings.Join(parts, "\x00")
	sum := sha256.Sum256([]byte(key))
	m.path = filepath.Join(dir, "kitbag", "mcp-groups", hex.EncodeToString(sum[:16])+".json")
	data, err := os.ReadFile(m.path)
	if err == nil && len(data) <= maxMemory && json.Unmarshal(data, m) == nil {
		m.last = string(data)
	}
	m.Groups = m.Groups[:min(len(m.Groups), maxGroups)]
	return m
}

// keep stores the groups for the next run. It ignores errors, which only cost the groups.
func (m *memory) keep(groups []mcpclient.Group) {
	var next struct {
		Groups []remembered `json:"groups"`
	}
	for _, g := range groups {
		if strings.Contains(g.Name, "/") && len(next.Groups) < maxGroups {
			next.Groups = append(next.Groups, remembered{g.Name, g.Title, g.Description, g.Parents})
		}
	}
	data, err := json.Marshal(next)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || m.path == "" || string(data) == m.last || len(data) > maxMemory || m.last == "" && len(next.Groups) == 0 {
		return
	}
	m.last = string(data)
	if os.MkdirAll(filepath.Dir(m.path), 0o700) != nil {
		return
	}
	// Rename, so that another kitbag reads either the old file or the new one.
	f, err := os.CreateTemp(filepath.Dir(m.path), ".new-*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if f.Close() != nil || err != nil || os.Rename(f.Name(), m.path) != nil {
		os.Remove(f.Name())
	}
}
