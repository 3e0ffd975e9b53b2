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

// gauge returns the gauge of the conversation. It is set anew because a hand-off changes the configuration, and each
// answer the ratio.
func (r *run) gauge() *window.Gauge {
	g := &r.windowGauge
	g.Window, g.Compact, g.Ratio = r.cfg.Window.Tokens, r.cfg.Window.Compact, r.st.tokenRatio
	return g
}

// fixed estimates the tokens of the next request without the messages.
func (r *run) fixed(v *toolkit.View) int {
	return window.Fixed(r.system(v.Prompt()), v.Tools()) + r.closedToolTokens()
}

// budget returns the estimated tokens that the messages may have after a compaction; less once a server has refused a
// request as too long.
func (r *run) budget(v *toolkit.View) int { return r.gauge().Budget(r.fixed(v)) }

// fitWindow compacts the conversation if the next request would fill too much of the window.
func (r *run) fitWindow(v *toolkit.View) error {
	if err := r.fitData(v); err != nil {
		return err
	}
	if !r.gauge().Due(r.fixed(v), r.gauge().Count(r.st.Messages).Tokens) {
		return nil
	}
	_, err := r.compact(v, false)
	return err
}

// isRepairable reports whether err is the refusal of a conversation that repairConversation may repair.
func (r *run) isRepairable(err error) bool {
	switch kindOf(err) {
	case model.KindContextTooLong:
		return r.cfg.Window.Compact >= 0
	case model.KindBadImage:
		return r.newestImage() != nil
	}
	return false
}

// repairConversation changes a conversation that a server has refused, so that it can be sent again: for KindBadImage it
// removes the newest image, which is the most likely cause, otherwise it compacts the conversation. It returns an error
// if the conversation cannot be made shorter.
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
	r.gauge().Refuse(r.fixed(v) + r.gauge().Count(r.st.Messages).Tokens)
	shortened, err := r.compact(v, true)
	if err == nil && !shortened {
		err = fmt.Errorf("%w; %s", refusal, r.gauge().Largest(r.system(v.Prompt()), v.Tools(), r.st.Messages))
	}
	return err
}

// compact makes the conversation shorter: first it cuts old tool results, and if that is not enough it
// replaces the old messages with a summary. tooLong says that a server has refused the conversation as too long.
func (r *run) compact(v *toolkit.View, tooLong bool) (shortened bool, err error) {
	g, old, fixed := r.gauge(), r.st.Messages, r.fixed(v)
	size := g.Count(old).Tokens
	g.Compacted(fixed + size) // in case that the conversation does not become shorter
	keep := g.Share(r.cfg.Window.Keep)
	from := window.KeepFrom(old, keep)
	ev := new(event.Compaction)
	var msgs []*message.Message
	if cut, fits := window.WithoutSummary(old, from, keep, g.Budget(fixed)); fits {
		msgs = cut.Apply(old, r.storeWhole)
	} else if msgs, err = r.replaceBySummary(v, from, tooLong, ev); err != nil {
		return false, err
	}
	after := window.Messages(msgs)
	if after >= size {
		return false, nil
	}
	err = r.rewrite(v, msgs, ev)
	g.Compacted(fixed + after)
	return true, err
}

// replaceBySummary returns the conversation with a summary in place of the messages before index from, or in place of all
// messages if those from there on do not fit together with a summary.
func (r *run) replaceBySummary(v *toolkit.View, from int, tooLong bool, ev *event.Compaction) ([]*message.Message, error) {
	old := r.st.Messages
	if window.Summarised(old, len(old)) {
		if !tooLong {
			return old, nil
		}
		// Only the images and files of the user's last message can still be removed.
		return window.Cut{From: len(old), Data: len(old)}.Apply(old, r.storeWhole), nil
	}
	summary, err := r.summarise(v, tooLong, ev)
	if ended := r.ctx.Err(); err != nil && ended != nil {
		return nil, ended
	}
	if errors.Is(err, errTimeUp) { // no next request will need a shorter conversation
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
		msgs = r.withSummary(v, summary, from, r.budget(v))
		if cut, fits = window.WithSummary(msgs, len(msgs)-len(old[from:]), r.budget(v)); fits {
			break
		}
	}
	return cut.Apply(msgs, r.storeWhole), nil
}

// compactNow replaces all messages but the newest step with a summary, for the input [Compact].
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
	ev := new(event.Compaction)
	if ev.Summary, err = r.summarise(v, false, ev); err != nil {
		return fmt.Errorf("the conversation is not compacted, as the model gave no summary: %w", err)
	}
	msgs := r.withSummary(v, ev.Summary, from, r.budget(v))
	if window.Messages(msgs) >= window.Messages(old) {
		return nil
	}
	return r.rewrite(v, msgs, ev)
}

// rewrite replaces the messages of the conversation, saves the State, and emits ev with the sizes.
func (r *run) rewrite(v *toolkit.View, msgs []*message.Message, ev *event.Compaction) error {
	g, fixed := r.gauge(), r.fixed(v)
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
	excess := n - limit/2 // half of the limit, so that the next replacement is not needed soon
	return r.replaceData(v, func(d *message.Data, tool string) string {
		if excess--; excess < 0 {
			return ""
		}
		return window.RemovedNote(d, tool)
	})
}

// replaceData replaces the images and files for which note returns a text. It calls note in the order of the conversation.
func (r *run) replaceData(v *toolkit.View, note window.Note) error {
	return r.rewrite(v, window.WithoutData(r.st.Messages, note), new(event.Compaction))
}

// newestImage returns the last image in the conversation that is sent to the model, nil for none: images in the model's
// own messages are not sent.
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

// withoutDamaged returns blocks with damaged images replaced by a note, and wrong media types of images corrected:
// otherwise a server would refuse every request with the conversation.
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

// storeWhole is a [window.Keeper]: it stores the whole text of a result in Window.Results, unless it is already there.
func (r *run) storeWhole(res *message.ToolResult) (redactedRes *message.ToolResult, why string) {
	res = redacted(r.cfg.Redact, res) // before it is cut: part of a secret is not recognized
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
