package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

// A vendor is a model whose server answers with a line of JSON for each piece.
type vendor struct{ url, name, key string }

func (v *vendor) Name() string { return v.name }

func (v *vendor) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) {
		resp, err := v.send(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		for lines := json.NewDecoder(resp.Body); ; {
			var piece struct {
				Text string
				Call *model.ToolCallDelta // the first has Index, ID and Name, all have a part of Args
				Done *struct{ Read, Wrote int }
			}
			err := lines.Decode(&piece)
			var chunk model.Chunk = &model.TextDelta{Text: piece.Text}
			switch {
			case err != nil: // io.EOF too: nothing was done
				yield(nil, &model.Error{Kind: model.KindConnection, Message: "the stream broke off", Err: err})
				return
			case piece.Done != nil:
				yield(&model.Finish{Reason: model.FinishStop, Usage: message.Usage{Input: piece.Done.Read, Output: piece.Done.Wrote}}, nil)
				return
			case piece.Call != nil:
				chunk = piece.Call
			}
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

func (v *vendor) send(ctx context.Context, req *model.Request) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"model": v.name, "system": req.System, "messages": req.Messages, "tools": req.Tools})
	if err != nil {
		return nil, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Authorization", "Bearer "+v.key)
	resp, err := http.DefaultClient.Do(post)
	if err != nil {
		return nil, &model.Error{Kind: model.KindConnection, Err: err}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, httperror.Of(resp) // it closes the body
	}
	return resp, nil
}

// A model for a vendor of one's own. Test it with package modeltest.
func ExampleModel() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"text":"Hello, "}`)
		fmt.Fprintln(w, `{"text":"world."}`)
		fmt.Fprintln(w, `{"done":{"read":3,"wrote":2}}`)
	}))
	defer server.Close()
	m := &vendor{url: server.URL, name: "tiny", key: "secret"}
	msg, fin, err := model.Collect(m.Generate(context.Background(), &model.Request{Messages: []*message.Message{message.User("Hi")}}))
	fmt.Println(msg.Text(), fin.Reason, fin.Usage.Output, err)
	// Output: Hello, world. stop 2 <nil>
}
