package pdf

import (
	"context"
	"fmt"
)

// A page has a page's dictionary and its resources, which may be inherited from a parent node.
type page struct{ dict, resources object }

// readPages reads the page tree, in order; section 7.7.3.
func (f *File) readPages(ctx context.Context) error {
	if err := f.unlock(ctx); err != nil {
		return err
	}
	w := treeWalk{file: f, seen: map[int]bool{}}
	root := f.get(ctx, f.trailer, "Root")
	err := w.node(ctx, root.key("Pages"), object{}, 0)
	switch {
	case f.err != nil:
		return f.err
	case err != nil:
		return err
	case len(f.pages) == 0 && f.damage != nil:
		return damagef("it has no pages: %v", f.damage)
	case len(f.pages) == 0:
		return damagef("it has no pages")
	}
	return nil
}

type treeWalk struct {
	file  *File
	seen  map[int]bool
	nodes int
}

// node adds the pages of a node, which is a page or has child nodes.
func (w *treeWalk) node(ctx context.Context, v, resources object, level int) error {
	if w.nodes++; w.nodes > maxNodes || level > maxLevels {
		return fmt.Errorf("its page tree has more than %d nodes or %d levels", maxNodes, maxLevels)
	}
	ref := v
	v = w.file.resolve(ctx, v)
	if own := w.file.get(ctx, v, "Resources"); own.kind == kindDict {
		resources = own
	}
	if w.file.get(ctx, v, "Type").name() == "Page" {
		w.file.pages = append(w.file.pages, page{v, resources})
		return nil
	}
	if ref.kind == kindRef { // a page may occur twice
		if w.seen[int(ref.num)] {
			return fmt.Errorf("its page tree has object %d twice, which is not a page", int(ref.num))
		}
		w.seen[int(ref.num)] = true
	}
	for _, kid := range w.file.get(ctx, v, "Kids").list() {
		if w.file.err != nil {
			return w.file.err
		}
		if err := w.node(ctx, kid, resources, level+1); err != nil {
			return err
		}
	}
	return nil
}
