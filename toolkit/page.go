package toolkit

import (
	"errors"

	"github.com/kitbag-go/kitbag/tool"
)

// ErrCursor is returned for a cursor that is invalid, or whose list has changed since.
var ErrCursor = errors.New("the cursor is invalid or its list has changed; start from the beginning")

// PageGroups returns a page of [Toolkit.Groups]; see [View.Page]. The cursors are the same with every preset.
func (tk *Toolkit) PageGroups(s *Scope, cursor string, size int) ([]GroupInfo, string, error) {
	return page(&rules{}, tk.Groups(s), func(g GroupInfo) string { return g.Name }, cursor, size)
}

// Page returns the tools after the cursor, at most size of them, and the cursor of the next page. An empty cursor
// means the first page; the returned cursor is empty after the last page. A size of 0 means no limit. The error wraps
// [ErrCursor].
func (v *View) Page(cursor string, size int) ([]tool.Info, string, error) {
	return page(v.body.c.rules, v.body.infos, func(i tool.Info) string { return i.Name }, cursor, size)
}

// page returns at most size items after the cursor, whose format the rules decide.
func page[T any](r *rules, items []T, name func(T) string, cursor string, size int) (out []T, next string, err error) {
	start := 0
	if cursor != "" {
		names := make([]string, len(items))
		for i, item := range items {
			names[i] = name(item)
		}
		if start, err = r.positionAfter(cursor, names); err != nil {
			return nil, "", err
		}
	}
	end := start + size
	if size <= 0 || len(items) <= end {
		return items[start:], "", nil
	}
	return items[start:end:end], r.cursorAfter(end-1, name(items[end-1])), nil
}
