package toolkit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
)

// ErrCursor is returned for a cursor that does not fit the list: made up, or
// of a list that has changed since.
var ErrCursor = errors.New("the cursor does not fit the list; start from the beginning")

// PageGroups returns a page of Groups; see [View.Page].
func (tk *Toolkit) PageGroups(s *Scope, cursor string, size int) ([]GroupInfo, string, error) {
	return page(tk.Groups(s), func(g GroupInfo) string { return g.Name }, cursor, size)
}

// page returns the items after the cursor. A cursor stands for the name of the
// last item: a list that is sorted by name may change between the pages, any
// other only elsewhere.
func page[T any](items []T, name func(T) string, cursor string, size int) ([]T, string, error) {
	start := 0
	if cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", cursor, ErrCursor)
		}
		last := string(raw)
		byName := func(a, b T) int { return strings.Compare(name(a), name(b)) }
		if slices.IsSortedFunc(items, byName) {
			start = slices.IndexFunc(items, func(i T) bool { return name(i) > last })
			if start < 0 {
				start = len(items)
			}
		} else if start = slices.IndexFunc(items, func(i T) bool { return name(i) == last }) + 1; start == 0 {
			return nil, "", fmt.Errorf("cursor %q: %w", cursor, ErrCursor)
		}
	}
	items = items[start:]
	if size <= 0 || len(items) <= size {
		return items, "", nil
	}
	return items[:size:size], base64.RawURLEncoding.EncodeToString([]byte(name(items[size-1]))), nil
}

// Page returns the tools after the cursor, at most size of them, and the cursor
// of the next page; both cursors are empty at the ends. A size of 0 has no
// limit. The error is [ErrCursor]. See also [Policy.Offsets].
func (v *View) Page(cursor string, size int) ([]tool.Info, string, error) {
	if !v.body.c.cfg.Policy.Offsets {
		return page(v.body.infos, func(i tool.Info) string { return i.Name }, cursor, size)
	}
	start := 0
	if cursor != "" {
		n, err := strconv.Atoi(cursor)
		if err != nil || n < 0 || n > len(v.body.infos) {
			return nil, "", fmt.Errorf("cursor %q: %w", cursor, ErrCursor)
		}
		start = n
	}
	items := v.body.infos[start:]
	if size <= 0 || len(items) <= size {
		return items, "", nil
	}
	return items[:size:size], strconv.Itoa(start + size), nil
}
