package builtin

import "github.com/kitbag-go/kitbag/tool"

// Unwrap returns the function tool to which each of these types adds capabilities, for [tool.As].

func (b *bash) Unwrap() tool.Tool     { return b.Tool }
func (e *edit) Unwrap() tool.Tool     { return e.Tool }
func (g *glob) Unwrap() tool.Tool     { return g.Tool }
func (g *grepTool) Unwrap() tool.Tool { return g.Tool }
func (r *read) Unwrap() tool.Tool     { return r.Tool }
func (w *write) Unwrap() tool.Tool    { return w.Tool }
