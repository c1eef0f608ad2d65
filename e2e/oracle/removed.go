package oracle

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/handlers"
)

// Removed is a plugin of an older release of Kubernetes, in a process of its
// own: a command of ../removed. All of them only validate.
type Removed struct {
	command *exec.Cmd
	reviews io.WriteCloser
	answers *json.Decoder
}

// StartRemoved starts the command for a plugin, in a world that has objects of
// the kinds that the plugin asks for.
func StartRemoved(command, plugin string, world World) (*Removed, error) {
	r := &Removed{command: exec.Command(command, plugin)}
	r.command.Stderr = os.Stderr
	var err error
	if r.reviews, err = r.command.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := r.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.answers = json.NewDecoder(answers)
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	for _, object := range world.Objects {
		encoded, err := encode(object)
		if err != nil {
			return nil, err
		}
		if _, err := r.reviews.Write(encoded); err != nil {
			return nil, fmt.Errorf("cannot tell %s what there is: %w", command, err)
		}
	}
	return r, nil
}

// Stop ends the process.
func (r *Removed) Stop() error {
	if err := r.reviews.Close(); err != nil {
		return err
	}
	return r.command.Wait()
}

func (r *Removed) answer(request *request, phase handlers.Phase) (Answer, error) {
	if phase == handlers.Mutate {
		return Answer{Object: request.object}, nil
	}
	if _, err := r.reviews.Write(request.body); err != nil {
		return Answer{}, fmt.Errorf("cannot ask %s: %w", r.command.Path, err)
	}
	var status *metav1.Status
	if err := r.answers.Decode(&status); err != nil {
		return Answer{}, fmt.Errorf("no answer from %s: %w", r.command.Path, err)
	}
	return Answer{Status: status}, nil
}
