package webhook

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/fastadmit/fastadmit/handlers/internal/slots"
)

const (
	// circuitPauseMax is the maximum pause. Webhooks recover sooner, and operators should not
	// have to wait longer for them.
	circuitPauseMax = 10 * time.Minute

	// circuitTenantsMax is the number of tenants with failed calls that a circuit remembers: about
	// as many as the namespaces of a large cluster in which somebody creates objects. They take 150 KiB.
	circuitTenantsMax = 1024

	// circuitIndependent is how many namespaces must have open circuits, with no call that succeeded
	// in between, before the webhook itself is the likely cause. Two may belong to one user. If all
	// calls of three fail, those of other namespaces most likely fail, too.
	circuitIndependent = 3
)

var errCircuitOpen = errors.New("failed to call webhook: it is not called for some time, because previous calls have failed")

// A circuit allows calls until too many consecutive ones have failed. Then it allows one call
// after each pause. Failures to connect count for all tenants. Other failures may be caused by the
// object, so they count only for its tenant: a user whose objects make a webhook fail must not
// switch it off for others.
type circuit struct {
	settings *Circuit // nil to allow all calls

	mu      sync.Mutex
	all     breaker // of failures to connect
	tenants map[slots.Tenant]*tenant
	success int // the number of calls that succeeded
}

// A tenant is a user in a namespace.
type tenant struct {
	breaker
	// namespace is the digest of the namespace. For an object without a namespace, it is the
	// digest of the user.
	namespace slots.Tenant
	opened    int // the value of success when its circuit was opened
}

// A breaker counts consecutive failures.
type breaker struct {
	failures int
	until    time.Time // open until then; zero if it is closed
}

// mayCall reports whether a call is allowed: b is closed, or its pause is over.
func (b *breaker) mayCall(now time.Time) bool { return b.until.IsZero() || !now.Before(b.until) }

// called begins the next pause if b is open, so that only one call is made after each pause.
func (b *breaker) called(now time.Time, pause time.Duration) {
	if !b.until.IsZero() {
		b.until = now.Add(pause)
	}
}

func (b *breaker) failed(now time.Time, failuresMax int, pause time.Duration) {
	if b.failures++; b.failures >= failuresMax {
		b.until = now.Add(pause)
	}
}

// A caller is the tenant of a call.
type caller struct{ key, namespace slots.Tenant }

func newCaller(user, namespace string) caller {
	group := "namespace " + namespace
	if namespace == "" {
		group = "user " + user
	}
	return caller{sha256.Sum256([]byte(user + "\x00" + namespace)), sha256.Sum256([]byte(group))}
}

// A callResult is the result of a call, for the circuit breaker.
type callResult int

const (
	succeeded   callResult = iota
	unreachable            // no connection was made
	failed                 // the webhook did not answer on the connection, or its answer cannot be used
	unknown                // the call says nothing about the webhook
)

// allows reports whether a call may be made. While the circuit is open, it allows one call
// after each pause.
func (c *circuit) allows(who caller, now time.Time) bool {
	if c.settings == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.tenants[who.key]
	if of == nil {
		of = new(tenant)
	}
	if !c.all.mayCall(now) || !of.mayCall(now) {
		return false
	}
	c.all.called(now, c.settings.Pause.Duration)
	of.called(now, c.settings.Pause.Duration)
	return true
}

// ended records the result of an allowed call.
func (c *circuit) ended(who caller, result callResult, now time.Time) {
	if c.settings == nil || result == unknown {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pause := c.settings.Pause.Duration
	if result == unreachable {
		c.all.failed(now, c.settings.Failures, pause)
		return
	}
	c.all = breaker{}
	if result == succeeded {
		c.success++
		delete(c.tenants, who.key)
		return
	}
	failuresMax := c.settings.Failures
	if c.independent() >= circuitIndependent {
		failuresMax = 1 // so that each further tenant waits for one timeout only
	}
	of := c.tenant(who)
	if of.failed(now, failuresMax, pause); !of.until.IsZero() {
		of.opened = c.success
	}
}

// tenant returns the tenant of a failed call. If there are too many tenants, it forgets another one,
// preferably one whose circuit is closed.
func (c *circuit) tenant(who caller) *tenant {
	if of := c.tenants[who.key]; of != nil {
		return of
	}
	if len(c.tenants) >= circuitTenantsMax {
		var least slots.Tenant
		for key, of := range c.tenants {
			if least = key; of.until.IsZero() {
				break
			}
		}
		delete(c.tenants, least)
	}
	if c.tenants == nil {
		c.tenants = make(map[slots.Tenant]*tenant)
	}
	of := &tenant{namespace: who.namespace}
	c.tenants[who.key] = of
	return of
}

// independent returns the number of namespaces whose circuits were opened after the last call that
// succeeded.
func (c *circuit) independent() int {
	namespaces := make(map[slots.Tenant]bool)
	for _, of := range c.tenants {
		if !of.until.IsZero() && of.opened == c.success {
			namespaces[of.namespace] = true
		}
	}
	return len(namespaces)
}

// isOpen reports whether calls of all tenants fail: the webhook cannot be reached, or several
// namespaces have open circuits.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.all.until.IsZero() || c.independent() >= circuitIndependent
}

// openTenants returns the number of tenants with open circuits.
func (c *circuit) openTenants() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.tenants {
		if !of.until.IsZero() {
			n++
		}
	}
	return n
}
