package provider

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/model"
)

// TestRemedy checks what errors say to change, and that they have no secret of the base URL.
func TestRemedy(t *testing.T) {
	const base = "https://user:secret1@api.example.com/v1?key=secret2#secret3"
	for _, row := range []struct {
		err  *model.Error
		want string
	}{
		{&model.Error{Kind: model.KindAuthentication, Status: 401, Message: "no."}, "no; check the key, which must be a key for https://api.example.com/v1"},
		{&model.Error{Kind: model.KindAuthentication, Message: "no"}, "no; check the key, which must be a key for https://api.example.com/v1"}, // in a stream
		{&model.Error{Kind: model.KindInvalidRequest, Status: 404, Message: "Not Found"},
			`Not Found; check Config.Model (KITBAG_MODEL), now "gpt-9", and Config.BaseURL (OPENAI_BASE_URL), now https://api.example.com/v1`},
		{&model.Error{Kind: model.KindBadImage, Status: 404, Message: "no endpoint takes images"}, "no endpoint takes images"},
		{&model.Error{Kind: model.KindInvalidRequest, Status: 400, Message: "bad"}, "bad"},
	} {
		Remedy(row.err, "OPENAI", "the key", base, "gpt-9")
		if row.err.Message != row.want || strings.Contains(row.err.Message, "secret") {
			t.Errorf("%q, want %q", row.err.Message, row.want)
		}
	}
}
