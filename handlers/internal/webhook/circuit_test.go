package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// A circuitTest tests a circuit that opens after 2 failures, with a pause of 10 s.
type circuitTest struct {
	*testing.T
	circuit
}

func newCircuitTest(t *testing.T) *circuitTest {
	return &circuitTest{t, circuit{settings: &Circuit{Failures: 2, Pause: metav1.Duration{Duration: 10 * time.Second}}}}
}

func second(n int) time.Time { return time.Unix(1000+int64(n), 0) }

// user returns a caller with a namespace of its own.
func user(name string) caller { return newCaller(name, name) }

func (c *circuitTest) allowsAt(seconds int, who string, want bool) {
	c.Helper()
	if got := c.allows(user(who), second(seconds)); got != want {
		c.Errorf("after %d s: got %v for %s, want %v", seconds, got, who, want)
	}
}

func (c *circuitTest) endsAt(seconds int, who string, result callResult, open bool, openTenants int) {
	c.Helper()
	c.ended(user(who), result, second(seconds))
	if c.isOpen() != open || c.openTenants() != openTenants {
		c.Errorf("after %d s: got open %v and for %d tenants, want %v and %d", seconds, c.isOpen(), c.openTenants(), open, openTenants)
	}
}

// TestCircuitStates goes through the states of a circuit: once with failures to connect, and once with
// other failures of a tenant.
func TestCircuitStates(t *testing.T) {
	for _, result := range []callResult{unreachable, failed} {
		c := newCircuitTest(t)
		all, own := result == unreachable, 1
		if all {
			own = 0
		}
		c.allowsAt(0, "a", true)
		c.endsAt(0, "a", result, false, 0)
		c.allowsAt(0, "a", true)
		c.endsAt(0, "a", succeeded, false, 0)
		c.allowsAt(1, "a", true)
		c.endsAt(1, "a", result, false, 0)
		c.endsAt(1, "a", unknown, false, 0)
		c.allowsAt(1, "a", true)
		c.endsAt(2, "a", result, all, own) // the second consecutive failure
		c.allowsAt(11, "a", false)
		c.allowsAt(11, "b", !all)
		c.allowsAt(12, "a", true)  // one call after the pause
		c.allowsAt(21, "a", false) // and no other one during the next pause
		c.allowsAt(22, "a", true)
		c.endsAt(23, "a", result, all, own)
		c.allowsAt(32, "a", false)
		c.allowsAt(33, "a", true)
		c.endsAt(34, "a", succeeded, false, 0)
		c.allowsAt(34, "a", true)
		c.endsAt(34, "a", result, false, 0) // counting begins again
	}
	var none circuit
	for range 10 {
		if none.ended(user("a"), unreachable, second(0)); !none.allows(user("a"), second(0)) || none.isOpen() {
			t.Error("a webhook without a circuit is not called")
		}
	}
}

// TestCircuitTenant has a hostile user with failing calls in many namespaces: the circuits of others stay
// closed.
func TestCircuitTenant(t *testing.T) {
	c := newCircuitTest(t)
	for i := range 100 {
		attacker := fmt.Sprint("attacker", i)
		c.ended(user(attacker), failed, second(1))
		c.endsAt(1, attacker, failed, i >= 2, i+1)
		c.allowsAt(1, attacker, false)
		c.allowsAt(1, "a", true)
	}
	c.endsAt(2, "a", succeeded, false, 100) // after a success, other tenants have two failures again
	c.endsAt(2, "b", failed, false, 100)
	c.allowsAt(2, "b", true)
	c.endsAt(2, "b", failed, false, 101)
	c.allowsAt(2, "b", false)
	c.allowsAt(2, "a", true)
}

// TestCircuitHangs has a webhook that accepts connections and never answers. When the circuits of three
// namespaces are open, each further tenant waits for it only once.
func TestCircuitHangs(t *testing.T) {
	c := newCircuitTest(t)
	for i, who := range []string{"a", "b", "c"} {
		c.endsAt(i, who, failed, false, i)
		c.allowsAt(i, who, true)
		c.endsAt(i, who, failed, i == 2, i+1)
		c.allowsAt(i, who, false)
	}
	c.allowsAt(3, "d", true)
	c.endsAt(3, "d", failed, true, 4)
	c.allowsAt(3, "d", false)
	c.allowsAt(13, "d", true)
	c.endsAt(14, "d", succeeded, false, 3)
	c.endsAt(14, "e", failed, false, 3)
	c.allowsAt(14, "e", true) // a second failure is needed again

	c = newCircuitTest(t)
	for i := range 4 { // one namespace, and one user without a namespace: both may be hostile
		for range 2 {
			c.ended(newCaller(fmt.Sprint(i), "namespace"), failed, second(0))
			c.ended(newCaller("user", ""), failed, second(0))
		}
	}
	if c.isOpen() || c.openTenants() != 5 {
		t.Errorf("got open %v, for %d tenants", c.isOpen(), c.openTenants())
	}
}

// TestCircuitReached checks that a connection closes the circuit that failures to connect have opened.
func TestCircuitReached(t *testing.T) {
	c := newCircuitTest(t)
	c.endsAt(0, "a", unreachable, false, 0)
	c.endsAt(0, "a", unreachable, true, 0)
	c.allowsAt(0, "b", false)
	c.allowsAt(10, "b", true)
	c.endsAt(10, "b", failed, false, 0)
	c.allowsAt(10, "a", true)
}

// TestCircuitTenantsMax checks that a circuit remembers at most circuitTenantsMax tenants.
func TestCircuitTenantsMax(t *testing.T) {
	c := newCircuitTest(t)
	c.settings.Failures = 1
	for i := range circuitTenantsMax + 1 {
		if c.ended(user(fmt.Sprint(i)), failed, second(0)); len(c.tenants) != min(i+1, circuitTenantsMax) {
			t.Fatalf("got %d tenants after %d", len(c.tenants), i+1)
		}
	}
	c.allowsAt(0, fmt.Sprint(circuitTenantsMax), false)
	c.ended(user(fmt.Sprint(circuitTenantsMax)), succeeded, second(0))
	c.settings.Failures = 2
	c.ended(user("closed"), failed, second(0))
	c.ended(user("open"), failed, second(0)) // replaces a tenant whose circuit is closed
	if c.tenants[user("closed").key] != nil || len(c.tenants) != circuitTenantsMax {
		t.Error("an open circuit was forgotten before one that is closed")
	}
}

// TestResultOf checks the results of errors of calls, with and without a connection.
func TestResultOf(t *testing.T) {
	var connected, not call
	connected.connected.Store(true)
	for _, c := range []struct {
		err             error
		connected, want callResult
	}{
		{nil, succeeded, succeeded},
		{&DenialError{}, succeeded, succeeded},
		{codec.ErrNoMemory, unknown, unknown},
		{&CallError{Reason: fmt.Errorf("x: %w", codec.ErrNoMemory)}, unknown, unknown},
		{&CallError{Reason: fmt.Errorf("x: %w", errBusy)}, unknown, unknown},
		{&CallError{Reason: context.DeadlineExceeded}, failed, unreachable},
		{&CallError{Reason: errors.New("x"), Code: http.StatusTooManyRequests}, failed, unreachable},
	} {
		if a, b := connected.resultOf(c.err), not.resultOf(c.err); a != c.connected || b != c.want {
			t.Errorf("%v: got %v with a connection and %v without, want %v and %v", c.err, a, b, c.connected, c.want)
		}
	}
}
