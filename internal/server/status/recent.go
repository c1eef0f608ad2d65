package status

import (
	"bytes"
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
	// IsExplained reports whether the review is kept, so that it can be asked again. All sets it.
	IsExplained bool
}

// A kept decision has the AdmissionReview that it is about, nil if that is not kept.
type kept struct {
	Decision
	body []byte
}

// Recent keeps the last denials and failures. Several goroutines may use it at the same time. A nil Recent keeps none.
type Recent struct {
	mu    sync.Mutex
	next  int
	all   []kept // a ring
	max   int
	bytes int // of all bodies
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
	// bodyBytesMax is the maximum length of a kept AdmissionReview. Nine in ten are smaller.
	bodyBytesMax = 64 << 10
	// bodiesBytesMax is the maximum length of all kept AdmissionReviews: 16 of the largest, or the default number of
	// decisions with 20 KiB each.
	bodiesBytesMax = 1 << 20
)

// Add adds a decision about a review in body. It copies what it keeps.
func (r *Recent) Add(d Decision, review *codec.Review, body []byte) {
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
	added := kept{Decision: d}
	if len(body) <= bodyBytesMax {
		added.body = bytes.Clone(body)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) < r.max {
		r.all = append(r.all, kept{})
	}
	// The place of the oldest decision, and of the next ones if there are still too many bytes.
	for i := 0; i < len(r.all) && (i == 0 || r.bytes+len(added.body) > bodiesBytesMax); i++ {
		oldest := &r.all[(r.next+i)%len(r.all)]
		r.bytes -= len(oldest.body)
		oldest.body = nil
	}
	r.bytes += len(added.body)
	r.all[r.next] = added
	r.next = (r.next + 1) % r.max
}

func name(text string) string { return strings.Clone(codec.TruncateString(text, nameBytesMax)) }

// last returns the last decision for 0, the one before it for 1.
func (r *Recent) last(i int) *kept { return &r.all[(r.next+len(r.all)-1-i)%len(r.all)] }

// All returns the decisions, the last one first.
func (r *Recent) All() []Decision {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Decision, 0, len(r.all))
	for i := range r.all {
		k := r.last(i)
		d := k.Decision
		d.IsExplained = k.body != nil
		all = append(all, d)
	}
	return all
}

// Find returns the last decision about a review with a UID, and a copy of the AdmissionReview. ok is false if there is
// none whose review is kept.
func (r *Recent) Find(uid string) (d Decision, body []byte, ok bool) {
	if r == nil {
		return d, nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		if k := r.last(i); k.UID == uid && k.body != nil {
			return k.Decision, bytes.Clone(k.body), true
		}
	}
	return d, nil, false
}

// Max returns how many decisions are kept.
func (r *Recent) Max() int {
	if r == nil {
		return 0
	}
	return r.max
}
