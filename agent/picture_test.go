package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// tinyGIF is the beginning of an image of one pixel.
var tinyGIF = []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,")

func pictureOf(name string, bytes []byte) *message.Data {
	return &message.Data{Name: name, MediaType: "image/gif", Bytes: bytes}
}

// shots returns a toolkit with a tool that returns an image, which is damaged if its path says so.
func shots() *toolkit.Toolkit {
	return toolkit.Of(tool.Must(tool.New("shot", "Takes a picture.", func(_ context.Context, in pathArg) (*tool.Result, error) {
		bytes := tinyGIF
		if strings.HasPrefix(in.Path, "damaged") {
			bytes = tinyGIF[:6]
		}
		return &tool.Result{Blocks: []message.Block{pictureOf(in.Path, bytes)}}, nil
	})))
}

// pictures returns the names of the images in a request.
func pictures(req *model.Request) (names []string) {
	for _, m := range req.Messages {
		for _, d := range window.DataIn(m.Blocks) {
			names = append(names, d.Name)
		}
	}
	return names
}

// TestDamagedPictures: no image whose beginning is damaged is sent,
// neither from a tool nor from the user.
func TestDamagedPictures(t *testing.T) {
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: shots()}, calls(`c1 shot {"path":"damaged"}`, `c2 shot {"path":"good"}`), says("done"))
	var st State
	said := Say("see", pictureOf("bad", tinyGIF[:6]), pictureOf("fine", tinyGIF), &message.Data{MediaType: "image/png", URL: "https://example.org/a.png"})
	if _, err := play(t, a, &st, said); err != nil {
		t.Fatal(err)
	}
	equal(t, "pictures", pictures(w.reqs[1]), []string{"fine", "", "good"})
	equal(t, "results", results(&st), []string{"c1 success: [image/gif damaged cannot be shown: it is cut off; continue without it, or get it in another form]", "c2 success: "})
	equal(t, "words", st.Messages[0].Text(), "see\n[image/gif bad cannot be shown: it is cut off; continue without it, or get it in another form]")
}

// TestRefusedPictures has a server reject requests with a certain image. The
// newest image is removed first, one for each rejection, also after the session was loaded.
func TestRefusedPictures(t *testing.T) {
	for _, row := range []struct {
		why     string
		bad     string   // the image that is rejected, "all" for every request
		refused int      // requests
		left    []string // pictures
		fails   bool
	}{
		{"none", "", 0, []string{"said", "p0", "p1", "p2"}, false},
		{"the newest", "p2", 1, []string{"said", "p0", "p1"}, false},
		{"the first of a tool", "p0", 3, []string{"said"}, false},
		{"the user's", "said", 4, nil, false},
		{"every request", "all", 5, nil, true},
	} {
		a, w := newAgent(t, Config{Policy: bypass, Toolkit: shots()})
		refused := 0
		server := func(next ...turn) {
			w.turns = nil
			a.model = turnFunc(func(req *model.Request) turn {
				w.reqs = append(w.reqs, req)
				if row.bad == "all" || strings.Contains(fmt.Sprint(pictures(req)), row.bad) && row.bad != "" {
					refused++
					return turn{err: &model.Error{Kind: model.KindBadImage, Status: 400, Message: "could not process image"}}
				}
				tn := next[0]
				next = next[1:]
				return tn
			})
		}
		st := &State{Messages: []*message.Message{{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "see"}, pictureOf("said", tinyGIF)}}}}
		for i := range 3 {
			id := fmt.Sprintf("old%d", i)
			st.Messages = append(st.Messages, message.Assistant(&message.ToolCall{ID: id, Name: "shot", Input: []byte(`{}`)}),
				&message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: id, Name: "shot",
					Outcome: message.OutcomeSuccess, Blocks: message.Blocks{pictureOf(fmt.Sprintf("p%d", i), tinyGIF)}}}})
		}
		st = reload(t, st)
		server(says("done"))
		evs, err := play(t, a, st, Say("continue"))
		if e, ok := errors.AsType[*model.Error](err); row.fails != (err != nil) || err != nil && (!ok || e.Kind != model.KindBadImage) {
			t.Fatalf("%s: %v", row.why, err)
		}
		equal(t, row.why+": refused", refused, row.refused)
		equal(t, row.why+": compactions", len(of[*event.Compaction](evs)), min(row.refused, 4))
		equal(t, row.why+": pictures", pictures(w.reqs[len(w.reqs)-1]), row.left)
		if row.fails {
			continue
		}
		refused = 0
		server(says("still here"))
		if _, err := play(t, a, reload(t, st), Say("and now?")); err != nil || refused > 0 {
			t.Errorf("%s: after a resume %d requests were refused, %v", row.why, refused, err)
		}
	}
}

// TestRefusedPictureInASummary has a conversation become too long while it has an image
// that the server rejects: the summary is made without it.
func TestRefusedPictureInASummary(t *testing.T) {
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: shots(), Window: Window{Tokens: 10_000}})
	a.model = turnFunc(func(req *model.Request) turn {
		switch {
		case len(pictures(req)) > 0:
			return turn{err: &model.Error{Kind: model.KindBadImage, Message: "no"}}
		case req.Choice.Mode == model.ChoiceNone:
			return says("They talked.")
		}
		return says("done")
	})
	st := talk(60, 500)
	st.Messages = append(st.Messages, &message.Message{Role: message.RoleUser, Blocks: message.Blocks{&message.Text{Text: "see"}, pictureOf("bad", tinyGIF)}},
		message.Assistant(&message.Text{Text: "I see"}))
	evs, err := play(t, a, st, Say("and?"))
	if err != nil {
		t.Fatal(err)
	}
	if c := of[*event.Compaction](evs); c[0].Summary != "They talked." || c[0].Failed != "" {
		t.Errorf("%+v", c[0])
	}
}
