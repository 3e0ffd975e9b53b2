package toolstate_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

// A tool keeps notes in the state of the session, which is saved with it.
func Example() {
	type noteIn struct {
		Note string `json:"note"`
	}
	var notes = toolstate.NewKey[[]string]("notes")
	remember := tool.Must(tool.New("remember", "Keeps a note.", func(ctx context.Context, in noteIn) (string, error) {
		n := 0
		err := notes.Update(ctx, func(list *[]string) error {
			*list = append(*list, in.Note)
			n = len(*list)
			return nil
		})
		return fmt.Sprintf("%d note(s)", n), err
	}))

	var session toolstate.State
	ctx := toolstate.With(context.Background(), &session)
	for _, input := range []string{`{"note": "buy milk"}`, `{"note": "call Ann"}`} {
		call := tool.Call{Name: "remember", Input: json.RawMessage(input)}
		c := tool.NewCollector(call)
		for chunk, err := range tool.Run(ctx, remember, call) {
			if err != nil {
				fmt.Println(err)
				return
			}
			c.Add(chunk)
		}
		fmt.Println(c.Result().Text())
	}
	saved, err := json.Marshal(&session)
	fmt.Println(string(saved), err)
	// Output:
	// 1 note(s)
	// 2 note(s)
	// {"notes":["buy milk","call Ann"]} <nil>
}
