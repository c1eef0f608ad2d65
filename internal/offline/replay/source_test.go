package replay

import (
	"bytes"
	"strings"
	"testing"
)

func TestReadLine(t *testing.T) {
	var got []string
	from := source{send: func(r record) bool {
		got = append(got, r.fault.Error())
		return true
	}}
	long := `{"apiVersion":"audit.k8s.io/v1"` + strings.Repeat(" ", fileBytesMax) + "\n"
	if !from.stream("a", strings.NewReader(long+`{"apiVersion":"audit.k8s.io/v2"}`)) {
		t.Error("got no end")
	}
	if len(got) != 2 || !strings.Contains(got[0], "got a line of more than") || !strings.Contains(got[1], "audit.k8s.io/v2") {
		t.Errorf("got %q", got)
	}
	got = got[:0]
	from.stream("a", strings.NewReader(strings.TrimSuffix(long, "\n")))
	if len(got) != 1 || !strings.Contains(got[0], "got a line of more than") {
		t.Errorf("at the end: got %q", got)
	}
	got = got[:0]
	if !from.stream("b", bytes.NewReader(bytes.Repeat([]byte("# x\n"), fileBytesMax/4+1))) || len(got) != 1 ||
		!strings.Contains(got[0], "got more than 33554432 bytes") {
		t.Errorf("got %q", got)
	}
}
