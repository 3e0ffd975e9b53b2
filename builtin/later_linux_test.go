package builtin

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// TestSecretsMadeLater: a credential that a login creates in the home directory is hidden from the next command.
func TestSecretsMadeLater(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	l := &Local{Dirs: []string{dir}}
	secret := filepath.Join(home, ".aws")
	if slices.Contains(l.Spec(permission.ProfileWork).Hide, secret) {
		t.Fatal("hidden before it exists")
	}
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	if hide := l.Spec(permission.ProfileWork).Hide; !slices.Contains(hide, secret) {
		t.Errorf("%s is not among %v", secret, hide)
	}
}
