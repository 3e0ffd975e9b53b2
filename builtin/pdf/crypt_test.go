package pdf

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// encrypted returns a file that another program, pdfcpu, has encrypted.
func encrypted(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".pdf"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestEncrypted checks that a file without a password is read, and that one with a password, or with an invalid
// key, gives an error with the remedy.
func TestEncrypted(t *testing.T) {
	for _, row := range []struct{ name, want string }{
		{"rc4-40", "Hello"}, {"rc4-128", "Hello"}, {"aes-128", "Hello"}, {"aes-256-r5", "Hello"}, {"aes-256-r6", "Hello"},
		{"password-rc4", "--password"}, {"password-r6", "--password"},
	} {
		raw := encrypted(t, row.name)
		got, err := firstPage(t.Context(), raw)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, row.want) || (err == nil) != (row.want == "Hello") {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
		// Without its table the file is searched, and the key is needed for its objects too.
		if got2, err := firstPage(t.Context(), bytes.Replace(raw, []byte("startxref"), []byte("start-ref"), 1)); (err == nil) != (row.want == "Hello") || err == nil && got2 != got {
			t.Errorf("%s, repaired: %q, %v, want %q", row.name, got2, err, got)
		}
		for _, change := range []struct{ old, new string }{{"/U", "/X"}, {"/UE", "/XE"}, {"/V ", "/V 7"}, {"/Filter/Standard", "/Filter/Other"}} {
			changed := bytes.ReplaceAll(raw, []byte(change.old), []byte(change.new))
			if got, err := firstPage(t.Context(), changed); err == nil && !bytes.Equal(raw, changed) {
				t.Errorf("%s, %s for %s: %q", row.name, change.new, change.old, got)
			}
		}
	}
}
