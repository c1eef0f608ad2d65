// Package status reads and writes the status of custom resources, such as policies and
// webhook configurations. The status contains conditions.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// messageBytesMax is how long the message of a condition is at most; the API has 32,768
	// (k8s.io/apimachinery pkg/apis/meta/v1 Condition).
	messageBytesMax = 8 << 10
	// timeout bounds writing one status.
	timeout = 5 * time.Second
)

// A Status is the field status of a custom resource.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// TypeChecking is the result of checking the types of expressions, nil if they were
	// not checked.
	TypeChecking *admissionregistrationv1.TypeChecking `json:"typeChecking,omitempty"`
}

// Of returns the status of an object. It is empty if the object has none or if it cannot
// be decoded.
func Of(object *cluster.JSON) *Status {
	if has, ok := read(object); ok {
		return has
	}
	return new(Status)
}

// read reads the status of an object; ok is false if it cannot be decoded.
func read(object *cluster.JSON) (has *Status, ok bool) {
	var o struct {
		Status Status `json:"status"`
	}
	text, err := object.MarshalJSON()
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &o)
	}
	return &o.Status, err == nil
}

// Message returns the text of an error as the message of a condition, cut off after 8 KiB.
func Message(err error) string { return codec.TruncateString(err.Error(), messageBytesMax) }

// Says returns the status as a text without times. Two statuses have the same text if they
// differ only in times.
func (s *Status) Says() string {
	text := fmt.Sprint(s.ObservedGeneration)
	for _, c := range s.Conditions {
		text += fmt.Sprintf(" %q %q %q %q %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration)
	}
	if s.TypeChecking != nil {
		text += fmt.Sprintf(" %q", s.TypeChecking.ExpressionWarnings)
	}
	return text
}

// Condition returns the condition with the type of, nil if there is none. It is shared
// with s.
func (s *Status) Condition(of string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, of)
}

// A Writer decides when to write the status of one object. All replicas compute the same
// status, so the first one writes it. A replica writes each status only once. Otherwise,
// two replicas of different versions could overwrite each other's status forever. The zero
// Writer is ready to use. Several goroutines may use it at the same time.
type Writer struct {
	mu   sync.Mutex
	said string // what this process wrote or found
}

// A Change is a status to write.
type Change struct {
	writer *Writer
	object *cluster.JSON
	says   string
}

// Due returns the Change that sets the status of an object to now. due is false if the
// object has this status, if its status cannot be decoded, or if this process wrote the
// same status before. With again, it does not matter what the process wrote before.
func (w *Writer) Due(object *cluster.JSON, now *Status, again bool) (c Change, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.writer, c.says = w, now.Says()
	if c.says == w.said && !again {
		return c, false
	}
	if c.object = now.in(object); c.object == nil {
		w.said = c.says
	}
	return c, c.object != nil
}

// Write writes the change to the cluster, within 5 s. After an error, Due returns the change
// again.
func (c Change) Write(ctx context.Context, objects *cluster.Objects[*cluster.JSON]) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := objects.UpdateStatus(ctx, c.object)
	if err == nil {
		c.writer.wrote(c)
	}
	return err
}

// wrote records that the change c was written.
func (w *Writer) wrote(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = c.says
}

// in returns a copy of an object with the status s, for UpdateStatus. It is nil if the object
// has an equal status, or one that cannot be decoded.
func (s *Status) in(object *cluster.JSON) *cluster.JSON {
	before, ok := read(object)
	if !ok || before.Says() == s.Says() {
		return nil
	}
	s.keepTimes(before)
	text, err := json.Marshal(s)
	if err != nil {
		return nil // it is strings, numbers and times
	}
	var o codec.Object
	object.Read(&o)
	o.Set(string(text), "status")
	changed, err := cluster.NewJSON(o.Root().AppendJSON(nil))
	if err != nil || o.Err() != nil {
		return nil // it was an object of the API
	}
	return changed
}

// keepTimes sets the transition times of the conditions: a condition whose status has not
// changed keeps its time in before, others get the current time.
func (s *Status) keepTimes(before *Status) {
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Now()
		for j := range before.Conditions {
			if b := &before.Conditions[j]; b.Type == s.Conditions[i].Type && b.Status == s.Conditions[i].Status {
				s.Conditions[i].LastTransitionTime = b.LastTransitionTime
			}
		}
	}
}
