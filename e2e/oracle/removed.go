package oracle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/admission"
)

// A process is a command of ../removed or ../released.
type process struct {
	command *exec.Cmd
	reviews io.WriteCloser
	answers *json.Decoder
}

// Removed is a plugin that Kubernetes has removed: a command of ../removed.
type Removed struct {
	process
	mutates bool
}

// A ReleasedAnswer is the answer of a command. It has the object before and after a mutation, as the older release
// decodes it. A command of ../removed whose plugin only validates writes only the Status.
type ReleasedAnswer struct {
	Status        *metav1.Status
	Before, After json.RawMessage
	Warnings      []string
	Annotations   map[string]string
	Panicked      string
}

// StartRemoved starts the command for a plugin, in a world that contains objects of the kinds that
// the plugin reads. A plugin that mutates is called in both phases. config is passed to commands
// that need the configuration of fastadmit's plugin.
func StartRemoved(command, plugin string, mutates bool, world World, config ...string) (*Removed, error) {
	r := &Removed{mutates: mutates}
	return r, r.start(world, command, append([]string{plugin}, config...)...)
}

// start starts a command in a world.
func (p *process) start(world World, command string, arguments ...string) (err error) {
	p.command = exec.Command(command, arguments...)
	p.command.Stderr = os.Stderr
	if p.reviews, err = p.command.StdinPipe(); err != nil {
		return err
	}
	answers, err := p.command.StdoutPipe()
	if err != nil {
		return err
	}
	p.answers = json.NewDecoder(answers)
	if err := p.command.Start(); err != nil {
		return err
	}
	return p.Know(world.Objects)
}

// Know tells the process what its cluster has.
func (p *process) Know(objects []runtime.Object) error {
	for _, object := range objects {
		encoded, err := encodeOf(object)
		if err != nil {
			return err
		}
		if _, err := p.reviews.Write(encoded); err != nil {
			return fmt.Errorf("cannot tell %s what there is: %w", p.command.Path, err)
		}
	}
	return nil
}

// encodeOf encodes an object of a world, with its kind. A type that Kubernetes has removed says it itself.
func encodeOf(object runtime.Object) ([]byte, error) {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
	if runtime.IsNotRegisteredError(err) {
		return encode(object)
	}
	if err != nil {
		return nil, err
	}
	object = object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	return encode(object)
}

// Stop ends the process.
func (p *process) Stop() error {
	if err := p.reviews.Close(); err != nil {
		return err
	}
	return p.command.Wait()
}

// ErrEnded says that the process ended: the plugin ended it in a way from which Go does not recover.
var ErrEnded = errors.New("it has ended")

// ask sends a review in a phase, and decodes the answer.
func (p *process) ask(body []byte, phase string, into any) error {
	body = fmt.Appendf(nil, `{"phase":%q,%s`, phase, bytes.TrimPrefix(body, []byte("{")))
	if _, err := p.reviews.Write(body); err != nil {
		return fmt.Errorf("cannot ask %s: %w", p.command.Path, err)
	}
	err := p.answers.Decode(into)
	if errors.Is(err, io.EOF) {
		err = ErrEnded
	}
	if err != nil {
		return fmt.Errorf("no answer from %s: %w", p.command.Path, err)
	}
	return nil
}

func (r *Removed) answer(request *request, phase admission.Phase) (Answer, error) {
	if phase == admission.Mutate && !r.mutates {
		return Answer{Object: request.object}, nil
	}
	var got ReleasedAnswer
	var into any = &got
	if !r.mutates {
		into = &got.Status
	}
	if err := r.ask(request.body, phase.String(), into); err != nil {
		return Answer{}, err
	}
	answer := Answer{Status: got.Status, Warnings: got.Warnings}
	for key, value := range got.Annotations {
		answer.annotate(key, value)
	}
	if phase == admission.Validate || got.Status != nil {
		return answer, nil
	}
	if answer.Object = request.object; !equalJSON(got.Before, got.After) {
		changed, err := json.Marshal(overlay(decode(request.object), decode(got.Before), decode(got.After)))
		answer.Object = changed
		return answer, err
	}
	return answer, nil
}

// overlay applies the difference between before and after to object. Both contain only the fields
// that an older release knows. The elements of lists keep their places.
func overlay(object, before, after any) any {
	if reflect.DeepEqual(before, after) {
		return object
	}
	switch after := after.(type) {
	case map[string]any:
		before, ok := before.(map[string]any)
		of, isMap := object.(map[string]any)
		if !ok || !isMap {
			return after
		}
		changed := maps.Clone(of)
		for key, value := range after {
			was, ok := before[key]
			switch {
			case !ok:
				changed[key] = value
			case !reflect.DeepEqual(was, value):
				changed[key] = overlay(of[key], was, value)
			}
		}
		for key := range before {
			if _, stays := after[key]; !stays {
				delete(changed, key)
			}
		}
		return changed
	case []any:
		before, ok := before.([]any)
		of, isList := object.([]any)
		if !ok || !isList || len(of) != len(before) || len(after) < len(before) {
			return after
		}
		changed := slices.Clone(after)
		for i := range before {
			changed[i] = overlay(of[i], before[i], after[i])
		}
		return changed
	}
	return after
}
