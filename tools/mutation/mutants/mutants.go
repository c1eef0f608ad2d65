// Package mutants is compiled into the packages whose tests are tested. It decides
// at run time which mutant of the code runs: none, or the one whose number is in
// the environment variable MUTANT.
package mutants

import (
	"cmp"
	"encoding/binary"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// active is the number of the mutant that runs, 0 for the original code.
var active, _ = strconv.Atoi(os.Getenv("MUTANT"))

// reached is a file to which the number of each point is written when it is
// reached for the first time, nil for none.
var reached = func() *os.File {
	name := os.Getenv("MUTANTS_REACHED")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}()

var seen [1 << 17]atomic.Bool

func reach(id int) {
	if !seen[id].Swap(true) {
		if _, err := reached.Write(binary.LittleEndian.AppendUint32(nil, uint32(id))); err != nil {
			panic(err)
		}
	}
}

// Is reports whether mutant id runs.
func Is(id int) bool {
	if reached != nil {
		reach(id)
	}
	return id == active
}

// Bool is a condition: always true (id) or always false (id+1).
func Bool(id int, v bool) bool {
	if reached != nil {
		reach(id)
	}
	switch active {
	case id:
		return true
	case id + 1:
		return false
	}
	return v
}

// Less is a < b: always true (id), always false (id+1), a <= b (id+2).
func Less[T cmp.Ordered](id int, a, b T) bool { return Bool(id, a < b || active == id+2 && a == b) }

// LessEqual is a <= b: always true (id), always false (id+1), a < b (id+2).
func LessEqual[T cmp.Ordered](id int, a, b T) bool {
	return Bool(id, a < b || active != id+2 && a == b)
}

// Greater is a > b: always true (id), always false (id+1), a >= b (id+2).
func Greater[T cmp.Ordered](id int, a, b T) bool { return Less(id, b, a) }

// GreaterEqual is a >= b: always true (id), always false (id+1), a > b (id+2).
func GreaterEqual[T cmp.Ordered](id int, a, b T) bool { return LessEqual(id, b, a) }

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Int is a constant: one more.
func Int[T integer](id int, v T) T {
	if Is(id) {
		return v + 1
	}
	return v
}

// Drop is a slice: without its element i (id+i).
func Drop[S ~[]E, E any](id int, s S) S {
	if reached != nil {
		reach(id)
	}
	if i := active - id; 0 <= i && i < len(s) {
		return slices.Delete(s, i, i+1)
	}
	return s
}

// Rule is a rule of a plugin, which has Operations: without the first of them (id),
// without the second (id+1).
func Rule[T any](id int, rule T) T {
	if reached != nil {
		reach(id)
	}
	if i := active - id; i == 0 || i == 1 {
		operations := reflect.ValueOf(&rule).Elem().FieldByName("Operations")
		if i < operations.Len() {
			operations.Set(reflect.AppendSlice(operations.Slice3(0, i, i), operations.Slice(i+1, operations.Len())))
		}
	}
	return rule
}

// Clone is strings.Clone: not done.
func Clone(id int, s string) string {
	if Is(id) {
		return s
	}
	return strings.Clone(s)
}

// CloneSlice is slices.Clone or bytes.Clone: not done.
func CloneSlice[S ~[]E, E any](id int, s S) S {
	if Is(id) {
		return s
	}
	return slices.Clone(s)
}
