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

// A groupCache stores a server's groups in the user's cache, so that the next run can list them before the
// server is started. Without a stored list a server is one group.
type groupCache struct {
	Groups []cachedGroup `json:"groups"` // empty if the server has none

	path string
	mu   sync.Mutex
	last string // the content of the file
}

// A cachedGroup is what the model is shown of a closed group.
type cachedGroup struct {
	Name        string   `json:"name"` // SERVER/GROUP
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Parents     []string `json:"parents,omitempty"`
}

// maxCache is the size of the largest cache file, in bytes. maxGroups is how many groups of a server are used;
// the tools of further groups are in the group of the rest.
const (
	maxCache  = 1 << 20
	maxGroups = 100
)

// loadGroups returns the stored groups of the server. A server with another command or address counts as
// another server.
func loadGroups(cfg mcpclient.Server) *groupCache {
	m := &groupCache{}
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
	if err == nil && len(data) <= maxCache && json.Unmarshal(data, m) == nil {
		m.last = string(data)
	}
	m.Groups = m.Groups[:min(len(m.Groups), maxGroups)]
	return m
}

// store writes the groups for the next run. It ignores errors, which only cost the groups.
func (m *groupCache) store(groups []mcpclient.Group) {
	var next struct {
		Groups []cachedGroup `json:"groups"`
	}
	for _, g := range groups {
		if strings.Contains(g.Name, "/") && len(next.Groups) < maxGroups {
			next.Groups = append(next.Groups, cachedGroup{g.Name, g.Title, g.Description, g.Parents})
		}
	}
	data, err := json.Marshal(next)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || m.path == "" || string(data) == m.last || len(data) > maxCache || m.last == "" && len(next.Groups) == 0 {
		return
	}
	m.last = string(data)
	if os.MkdirAll(filepath.Dir(m.path), 0o700) != nil {
		return
	}
	// Rename makes the change atomic for another kitbag that reads the file.
	f, err := os.CreateTemp(filepath.Dir(m.path), ".new-*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if f.Close() != nil || err != nil || os.Rename(f.Name(), m.path) != nil {
		os.Remove(f.Name())
	}
}
