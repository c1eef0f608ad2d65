package cluster

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fastadmit/fastadmit/internal/wake"
)

// paceFree is how many lists and watches of a kind follow one another without a pause. A
// kind that is followed for the first time sends three: a watch that asks for initial
// events and, if the API server refuses that, a list and a watch.
const paceFree = 3

// A pace spaces the lists and watches of a kind, whatever the API server answers. The
// reflector repeats some at once: after 410 (Gone), say, it asks for newer objects. The
// pause grows like that after failures, and is forgotten when the kind has been quiet for
// some time.
type pace struct {
	mu    sync.Mutex
	last  time.Time // when the last request was sent
	quick int       // requests that followed one another
}

// wait waits until the next request may be sent. It reports whether ctx goes on.
func (p *pace) wait(ctx context.Context, backoff wait.Backoff) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	const forgotten = 3 // times the longest pause
	if time.Since(p.last) > forgotten*backoff.Cap {
		p.quick = 0
	}
	pause := time.Duration(0)
	if p.quick >= paceFree {
		pause = backoff.Duration
		for i := paceFree; i < p.quick && pause < backoff.Cap; i++ {
			pause *= 2
		}
	}
	p.quick++
	goesOn := wake.Sleep(ctx, min(pause, backoff.Cap))
	p.last = time.Now()
	return goesOn
}
