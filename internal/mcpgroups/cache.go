package mcpgroups

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/replacefile"
	"github.com/kitbag-go/kitbag/mcpclient"
)

// A Cache stores the names of a server's tools and its groups in a file, so that the next run knows them
// before the server is started. Its methods are safe for concurrent use.
type Cache struct {
	path   string
	opened content // as it was read by OpenCache

	mu   sync.Mutex
	data string // the content of the file
}

// content is the content of the file.
type content struct {
	Groups []Label  `json:"groups"` // empty if the server has none
	Tools  []string `json:"tools"`  // null if they were not listed
}

const (
	maxCache  = 1 << 20 // bytes of the largest file
	maxLabels = 100     // groups of a server that are used; tools of further groups are in the group for the rest
)

// OpenCache opens the cache of a server in a directory. Servers with different commands or addresses have different
// caches. If dir is empty nothing is stored.
func OpenCache(dir string, cfg mcpclient.Server) *Cache {
	m := new(Cache)
	if dir == "" {
		return m
	}
	parts := []string{cfg.Name}
	switch t := cfg.Transport.(type) {
	case mcpclient.HTTP:
		parts = append(parts, t.URL)
	case mcpclient.Command:
		parts = append(append(parts, t.Dir, t.Path), t.Args...)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	m.path = filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	data, err := os.ReadFile(m.path)
	if err == nil && len(data) <= maxCache && json.Unmarshal(data, &m.opened) == nil {
		m.data = string(data)
	} else {
		m.opened = content{}
	}
	m.opened.Groups = m.opened.Groups[:min(len(m.opened.Groups), maxLabels)]
	// The descriptions of groups show these names, and another program may have changed the file.
	m.opened.Tools = slices.DeleteFunc(m.opened.Tools, func(name string) bool { return name == "" || name != Legal(name) || len(name) > 2*maxName })
	return m
}

// Labels returns the groups that were stored when the cache was opened.
func (m *Cache) Labels() []Label { return m.opened.Groups }

// Tools returns the names of the tools that were stored when the cache was opened; nil if there were none.
func (m *Cache) Tools() []string { return m.opened.Tools }

// Store writes the groups and the names of the tools for the next run. It ignores errors: without the file the next
// run must start the server.
func (m *Cache) Store(groups []mcpclient.Group, tools []string) {
	if m.path == "" {
		return
	}
	next := content{Tools: tools}
	for _, g := range groups {
		if strings.Contains(g.Name, "/") && len(next.Groups) < maxLabels {
			next.Groups = append(next.Groups, Label{g.Name, g.Title, g.Description, g.Parents})
		}
	}
	data, err := json.Marshal(next)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || string(data) == m.data || len(data) > maxCache {
		return
	}
	// The file is replaced because another process may read it.
	if os.MkdirAll(filepath.Dir(m.path), 0o700) == nil && replacefile.Write(m.path, data, 0o600) == nil {
		m.data = string(data)
	}
}
