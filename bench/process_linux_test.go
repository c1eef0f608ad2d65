package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 22600 0 0 0 150 50 0 0 20 0 9 0 35 1830000 2000 18446744073709551615 1\n"
	cpu, resident, err := parseStat([]byte(stat))
	if err != nil || cpu != 2*time.Second || resident != float64(2000*os.Getpagesize()) {
		t.Errorf("got %s, %g bytes and %v", cpu, resident, err)
	}
	f := func(stat string) {
		t.Helper()
		if _, _, err := parseStat([]byte(stat)); err == nil {
			t.Errorf("%q is no error", stat)
		}
	}
	f("")
	f("42 (a) S 1")
	f(strings.Replace(stat, " 150 ", " x ", 1))
}
