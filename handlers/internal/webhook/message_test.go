package webhook

import (
	"regexp"
	"testing"
)

// TestUID checks that uids are UUIDs, and that only these are recognized.
func TestUID(t *testing.T) {
	isUUID := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for range 1000 {
		uid := newUID()
		if !isUUID.MatchString(uid) || !isOwnUID(uid) || seen[uid] {
			t.Fatalf("got %s, own %v, twice %v", uid, isOwnUID(uid), seen[uid])
		}
		seen[uid] = true
		changed := []byte(uid)
		changed[len(changed)-1] ^= 1
		if isOwnUID(string(changed)) {
			t.Fatalf("%s is taken for one of fastadmit", changed)
		}
	}
	for _, uid := range []string{"", "1", "6b8a2f0e-7c35-4f0c-9d0a-3c8f7f6a1e52", "zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz",
		"6b8a2f0e-7c35-4f0c-"} {
		if isOwnUID(uid) {
			t.Errorf("%q is taken for one of fastadmit", uid)
		}
	}
}
