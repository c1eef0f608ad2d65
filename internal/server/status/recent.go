package status

import (
	"strings"
	"sync"
	"time"

	"github.com/fastadmit/fastadmit/codec"
)

// Decision is a denial or a failure.
type Decision struct {
	Time                           time.Time
	Endpoint, Plugin, Decision     string
	UID, User, Operation, Resource string
	Subresource, Namespace, Name   string
	Message                        string
}

// Recent keeps the last denials and failures. Several goroutines may use it at the same time. A nil Recent keeps none.
type Recent struct {
	mu   sync.Mutex
	next int
	all  []Decision // a ring
	max  int
}

// NewRecent returns a Recent that keeps so many decisions; nil if it is none.
func NewRecent(count int) *Recent {
	if count <= 0 {
		return nil
	}
	return &Recent{max: count}
}

const (
	// nameBytesMax is the maximum length of a kept name, that of names in Kubernetes.
	nameBytesMax = 253
	// messageBytesMax is the maximum length of a kept message.
	messageBytesMax = 1 << 10
)

// Add adds a decision about a review. It copies what it keeps.
func (r *Recent) Add(d Decision, review *codec.Review) {
	if r == nil {
		return
	}
	resource := review.Resource()
	d.UID, d.User = name(review.UID()), name(review.Username())
	d.Operation, d.Resource, d.Subresource = name(string(review.Operation())), name(resource.Resource), name(review.SubResource())
	if resource.Group != "" {
		d.Resource = name(resource.Resource + "." + resource.Group)
	}
	d.Namespace, d.Name = name(review.Namespace()), name(review.Name())
	d.Message = strings.Clone(codec.TruncateString(d.Message, messageBytesMax))
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) < r.max {
		r.all = append(r.all, d)
		return
	}
	r.all[r.next] = d
	r.next = (r.next + 1) % r.max
}

func name(text string) string { return strings.Clone(codec.TruncateString(text, nameBytesMax)) }

// All returns the decisions, the last one first.
func (r *Recent) All() []Decision {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Decision, 0, len(r.all))
	for i := range r.all {
		all = append(all, r.all[(r.next+len(r.all)-1-i)%len(r.all)])
	}
	return all
}

// Max returns how many decisions are kept.
func (r *Recent) Max() int {
	if r == nil {
		return 0
	}
	return r.max
}
