package memory

import (
	"errors"
	"io/fs"
	"math"
	"runtime/debug"
	"testing"
)

// TestShares checks that garbage has at least a sixth of the memory.
func TestShares(t *testing.T) {
	if sum := BodiesShare + ReviewsShare + ConnectionsShare + RetainedShare + StateShare; sum > 5.0/6 {
		t.Errorf("got %g for all shares, want at most 5/6", sum)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	f := func(limit, want int64) {
		t.Helper()
		debug.SetMemoryLimit(limit)
		if got := Share(1.0/4, 7); got != want {
			t.Errorf("limit %d: got %d, want %d", limit, got, want)
		}
	}
	f(math.MaxInt64, 7)
	f(2*Base+4, Base/4+1)
	f(2*Base-8, Base/4-1)
}

func TestContainerMemory(t *testing.T) {
	const v2, v1 = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
	f := func(want int64, files map[string]string) {
		t.Helper()
		got := ofContainer(func(name string) ([]byte, error) {
			if content, ok := files[name]; ok {
				return []byte(content), nil
			}
			return nil, errors.Join(fs.ErrNotExist)
		})
		if got != want {
			t.Errorf("%v: got %d, want %d", files, got, want)
		}
	}
	f(0, nil)
	f(80_000_000, map[string]string{v2: "100000000\n"})
	f(0, map[string]string{v2: "max\n"})
	f(80_000_000, map[string]string{v1: "100000000\n"})
	f(0, map[string]string{v1: "9223372036854771712\n"})
	f(0, map[string]string{v2: "0\n"})
	f(0, map[string]string{v2: ""})
}

// TestSetLimit sets the memory limit of the Go runtime, unless the environment does.
func TestSetLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	f := func(environment string, want int64) {
		t.Helper()
		t.Setenv("GOMEMLIMIT", environment)
		debug.SetMemoryLimit(1 << 40)
		SetLimit(func(string) ([]byte, error) { return []byte("1000000000"), nil })
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("GOMEMLIMIT=%s: got %d, want %d", environment, got, want)
		}
	}
	f("", 800_000_000)
	f("1GiB", 1<<40)
}
