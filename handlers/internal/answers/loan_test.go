package answers

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// A lender has a limited number of bytes.
type lender struct {
	left, kept int64
	log        []string
}

func (l *lender) Lend(_ context.Context, n int64, wait bool) (giveBack func(), ok bool) {
	l.log = append(l.log, fmt.Sprint(n, wait))
	if n > l.left {
		return nil, false
	}
	l.left -= n
	return func() { l.left += n }, true
}

func (l *lender) Keep(n int64) bool {
	l.kept += n
	return l.kept <= l.left
}

// TestLoanMore borrows memory for data that is made from an answer.
func TestLoanMore(t *testing.T) {
	lender := &lender{left: 1 << 20}
	loan := NewLoan(context.WithValue(t.Context(), codec.LenderKey{}, lender))
	for _, bytes := range []int64{16 << 10, 16<<10 + 1, 100_000} {
		if err := loan.Add(t.Context(), bytes); err != nil {
			t.Error(err)
		}
	}
	if want := int64(1<<20 - 16<<10 - 1 - 100_000); lender.left != want {
		t.Errorf("got %d bytes left, want %d", lender.left, want)
	}
	if err := loan.Add(t.Context(), 1<<20); !errors.Is(err, codec.ErrNoMemory) {
		t.Errorf("got %v, want no memory", err)
	}
	if loan.Return(); lender.left != 1<<20 {
		t.Errorf("got %d bytes back", lender.left)
	}
	if err := loan.Keep(16 << 10); err != nil || lender.kept != 0 {
		t.Errorf("got %v, %d bytes kept, want none", err, lender.kept)
	}
	if err := loan.Keep(1 << 20); err != nil || lender.kept != 1<<20 {
		t.Errorf("got %v, %d bytes kept", err, lender.kept)
	}
	if err := loan.Keep(1 << 20); !errors.Is(err, codec.ErrNoMemory) {
		t.Errorf("got %v, want no memory", err)
	}
}
