package hostcheck

import "testing"

func TestHosts(t *testing.T) {
	names := []string{"Tools.example.com"}
	for _, row := range []struct {
		host                  string
		local, localOrAddress bool
	}{
		{"localhost", true, true}, {"LOCALHOST:8080", true, true}, {"127.0.0.1:1", true, true}, {"127.9.9.9", true, true},
		{"[::1]", true, true}, {"[::1]:8080", true, true}, {"::1", true, true}, {"[::ffff:127.0.0.1]:1", true, true},
		{"tools.example.com", true, true}, {"TOOLS.EXAMPLE.COM:443", true, true},
		{"192.0.2.1:80", false, true}, {"[2001:db8::1]:80", false, true}, {"0.0.0.0", false, true},
		{"attack.invalid", false, false}, {"attack.invalid:80", false, false}, {"tools.example.com.attack.invalid", false, false},
		{"localhost.attack.invalid", false, false}, {"127.0.0.1.attack.invalid:80", false, false}, {"localhost:80:80", false, false},
		{"", false, false}, {":80", false, false}, {"localhost@attack.invalid", false, false}, {"2130706433", false, false}, {"0x7f.1", false, false},
	} {
		if got := Local(row.host, names); got != row.local {
			t.Errorf("Local(%q) = %t", row.host, got)
		}
		if got := LocalOrAddress(row.host, names); got != row.localOrAddress {
			t.Errorf("LocalOrAddress(%q) = %t", row.host, got)
		}
	}
}
