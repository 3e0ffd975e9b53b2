package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/picture"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/toolkit"
)

func (r *run) gauge() *window.Gauge {
	g := &r.windowGauge
	g.Window, g.Compact, g.Ratio = r.cfg.Window.Tokens, r.cfg.Window.Compact, r.st.tokenRatio
	return g
}

// fixed estimates the part of the next request that is not the conversation.
func (r *run) fixed(v *toolkit.View) int {
	return window.Fixed(r.system(v.Prompt()), v.Tools()) + r.closedToolTokens()
}

// fitWindow compacts the conversation if the next request would fill too much of the window.
func (r *run) fitWindow(v *toolkit.View) error {
	if err := r.fitData(v); err != nil {
		return err
	}
	fixed := r.fixed(v)
	if !r.gauge().Due(fixed, r.gauge().Count(r.st.Messages).Tokens) {
		return nil
	}
	_, err := r.compact(v, fixed, false)
	return err
}

// isRepairable reports whether a server refuses the conversation for a reason that repairConversation may remove.
func (r *run) isRepairable(err error) bool {
	switch kindOf(err) {
	case model.KindContextTooLong:
		return r.cfg.Window.Compact >= 0
	case model.KindBadImage:
		return r.newestImage() != nil
	}
	return false
}

// repairConversation changes a conversation that a server has refused, so that it can be sent again: it removes the
// newest image, which is the most likely cause, or makes the conversation shorter. It returns an error when
// there is nothing to change.
func (r *run) repairConversation(v *toolkit.View, refusal error) error {
	if kindOf(refusal) == model.KindBadImage {
		newest := r.newestImage()
		return r.replaceData(v, func(d *message.Data, _ string) string {
			if d != newest {
				return ""
			}
			return window.Damaged(d, "the model's server refused it, or another image in the same request")
		})
	}
	fixed := r.fixed(v)
	r.gauge().Refuse(fixed + r.gauge().Count(r.st.Messages).Tokens)
	gained, err := r.compact(v, fixed, true)
	if err == nil && !gained {
		err = fmt.Errorf("%w; %s", refusal, r.gauge().Largest(r.system(v.Prompt()), v.Tools(), r.st.Messages))
	}
	return err
}

// compact makes the conversation shorter: first it cuts old tool results, and if that is not enough it
// replaces everything before the current turn with a summary. refused says that a server has refused the
// conversation as too long. It reports whether anything was gained.
func (r *run) compact(v *toolkit.View, fixed int, refused bool) (gained bool, err error) {
	g, old := r.gauge(), r.st.Messages
	size := g.Count(old).Tokens
	g.Compacted(fixed + size)
	keep := g.Share(r.cfg.Window.Keep)
	from := window.KeepFrom(old, keep)
	ev := new(event.Compaction)
	var msgs []*message.Message
	if cut, fits := window.WithoutSummary(old, from, keep, g.Budget(fixed)); fits {
		msgs = cut.Apply(old, r.keepWhole)
	} else if msgs, err = r.replaceBySummary(v, from, fixed, refused, ev); err != nil {
		return false, err
	}
	after := window.Messages(msgs)
	if after >= size {
		return false, nil
	}
	err = r.rewrite(fixed, msgs, ev)
	g.Compacted(fixed + after)
	return true, err
}

// replaceBySummary returns the conversation with a summary in place of the messages before index from, or of all
// messages if the newest do not fit together with a summary.
func (r *run) replaceBySummary(v *toolkit.View, from, fixed int, refused bool, ev *event.Compaction) ([]*message.Message, error) {
	old := r.st.Messages
	if window.Summarised(old, len(old)) {
		if !refused {
			return old, nil
		}
		// Only the images and files of the user's last message can still be removed.
		return window.Cut{From: len(old), Data: len(old)}.Apply(old, r.keepWhole), nil
	}
	budget := func() int { return r.gauge().Budget(fixed) } // less when a request for the summary was refused
	summary, err := r.summarise(v, refused, budget, ev)
	if ended := r.ctx.Err(); err != nil && ended != nil {
		return nil, ended
	}
	if errors.Is(err, errTimeUp) { // nothing is cut if there is no next request
		return nil, err
	}
	if err != nil {
		ev.Failed, summary = err.Error(), ""
	}
	ev.Summary = summary
	var msgs []*message.Message
	var cut window.Cut
	for _, from := range []int{from, len(old)} {
		if window.Summarised(old, from) {
			continue
		}
		var fits bool
		msgs = r.withSummary(v, summary, from, budget())
		if cut, fits = window.WithSummary(msgs, len(msgs)-len(old[from:]), budget()); fits {
			break
		}
	}
	return cut.Apply(msgs, r.keepWhole), nil
}

// compactNow replaces all but the newest step with a summary because the user wants it.
func (r *run) compactNow() error {
	old := r.st.Messages
	from := window.KeepFrom(old, 0)
	if window.Summarised(old, from) {
		return nil
	}
	v, err := r.currentView()
	if err != nil {
		return err
	}
	fixed, ev := r.fixed(v), new(event.Compaction)
	budget := func() int { return r.gauge().Budget(fixed) }
	if ev.Summary, err = r.summarise(v, false, budget, ev); err != nil {
		return fmt.Errorf("the conversation is not compacted, as the model gave no summary: %w", err)
	}
	msgs := r.withSummary(v, ev.Summary, from, budget())
	if window.Messages(msgs) >= window.Messages(old) {
		return nil
	}
	return r.rewrite(fixed, msgs, ev)
}

func (r *run) rewrite(fixed int, msgs []*message.Message, ev *event.Compaction) error {
	g := r.gauge()
	ev.Before, ev.After = g.Tokens(fixed+g.Count(r.st.Messages).Tokens), g.Tokens(fixed+window.Messages(msgs))
	ev.Dropped = len(r.st.Messages) - len(msgs)
	g.Rewritten()
	r.st.Messages = msgs
	r.st.Generation++
	return r.store(ev)
}

// fitData replaces the oldest images and files when there are too many: servers limit their number, whatever their
// size.
func (r *run) fitData(v *toolkit.View) error {
	limit := r.cfg.Window.MaxData
	n := r.gauge().Count(r.st.Messages).Data
	if limit < 0 || n <= limit {
		return nil
	}
	drop := n - limit/2
	return r.replaceData(v, func(d *message.Data, tool string) string {
		if drop--; drop < 0 {
			return ""
		}
		return window.RemovedNote(d, tool)
	})
}

// replaceData replaces images and files with notes, in the order of the conversation.
func (r *run) replaceData(v *toolkit.View, note window.Note) error {
	return r.rewrite(r.fixed(v), window.WithoutData(r.st.Messages, note), new(event.Compaction))
}

// newestImage returns the last image that a request of the conversation contains, nil for none. The model's
// own images are not sent.
func (r *run) newestImage() *message.Data {
	for _, m := range slices.Backward(r.st.Messages) {
		if m.Role == message.RoleAssistant {
			continue
		}
		for _, d := range slices.Backward(window.DataIn(m.Blocks)) {
			if strings.HasPrefix(d.MediaType, "image/") {
				return d
			}
		}
	}
	return nil
}

// withoutDamaged returns blocks with damaged images replaced by a note: otherwise a server would refuse the
// conversation, now and after every resume.
func withoutDamaged(blocks message.Blocks) message.Blocks {
	blocks, _ = window.MapBlocks(blocks, func(b message.Block) message.Block {
		d, ok := b.(*message.Data)
		if !ok || d.URL != "" {
			return b
		}
		mediaType, err := picture.Check(d.MediaType, d.Bytes)
		if err != nil {
			return &message.Text{Text: window.Damaged(d, err.Error())}
		}
		if mediaType != d.MediaType {
			d = new(*d)
			d.MediaType = mediaType
		}
		return d
	})
	return blocks
}

// keepWhole stores the full text of a result that is about to be cut, if there is a store for it.
func (r *run) keepWhole(res *message.ToolResult) (*message.ToolResult, string) {
	res = redacted(r.cfg.Redact, res) // before it is cut: a part of a secret is not recognized
	store := r.cfg.Window.Results
	if store != nil && res.Kept {
		return res, ""
	}
	cp := *res
	cp.Kept = false
	if store == nil {
		return &cp, ""
	}
	if err := store.Put(context.WithoutCancel(r.ctx), res.ID, res.Text()); err != nil {
		return &cp, err.Error()
	}
	cp.Kept = true
	return &cp, ""
}
