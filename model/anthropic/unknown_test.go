package anthropic

import "testing"

// TestUnknownEvent checks that an event of a type that the API adds later is ignored, whatever its
// members are, and that a documented one must have its form.
func TestUnknownEvent(t *testing.T) {
	for data, ignored := range map[string]bool{
		`{"type":"new_event","delta":"a string","index":"x"}`: true,
		`{"type":"content_block_delta","delta":"a string"}`:   false,
	} {
		if err := new(answer).data([]byte(data)); (err == nil) != ignored {
			t.Errorf("%s: %v", data, err)
		}
	}
}
