package term

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/replacefile"
)

const (
	maxHistory = 500      // messages
	maxEntry   = 64 << 10 // bytes of a message that is stored
)

// A History has the messages that the user has typed in a directory, including earlier conversations. The zero
// History is not stored.
type History struct {
	file    string
	clean   func(string) string
	entries []string // oldest first
}

// OpenHistory reads the history in file, which may be missing. clean removes secrets from what is stored; it may be nil.
// After a read error the History has the messages before the error, and the file stays as it is.
func OpenHistory(file string, clean func(string) string) (*History, error) {
	h := &History{file: file, clean: clean}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 8*maxEntry) // more than Add writes: JSON needs at most six bytes for a byte
	lines := 0
	for sc.Scan() {
		lines++
		var text string
		if json.Unmarshal(sc.Bytes(), &text) == nil { // skip a line that a crash has cut off
			h.remember(text)
		}
	}
	if err := sc.Err(); err != nil {
		return h, fmt.Errorf("%s: %w", file, err)
	}
	if lines > 2*maxHistory { // rarely, as it costs more than to append
		return h, h.rewrite()
	}
	return h, nil
}

// remember appends an entry in memory. It reports false for an empty entry and for a repetition of the last.
func (h *History) remember(text string) bool {
	if n := len(h.entries); strings.TrimSpace(text) == "" || n > 0 && h.entries[n-1] == text {
		return false
	}
	h.entries = append(h.entries, text)
	if over := len(h.entries) - maxHistory; over > 0 {
		h.entries = slices.Clone(h.entries[over:])
	}
	return true
}

// Add appends a message. Two programs may append to the same file at once.
func (h *History) Add(text string) error {
	if h.clean != nil {
		text = h.clean(text)
	}
	if len(text) > maxEntry || !h.remember(text) || h.file == "" {
		return nil
	}
	line, err := json.Marshal(text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// rewrite replaces the file by one with only the newest entries.
func (h *History) rewrite() error {
	var all bytes.Buffer
	enc := json.NewEncoder(&all)
	for _, text := range h.entries {
		if err := enc.Encode(text); err != nil {
			return err
		}
	}
	return replacefile.Write(h.file, all.Bytes(), 0o600)
}
