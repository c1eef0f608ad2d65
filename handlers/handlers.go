// Package handlers holds what an admission plugin is: the contract it keeps,
// the rules that say which reviews it gets, and the chain that runs plugins in
// order on one review.
//
// A plugin is a folder below this one and a line in the table of package
// plugins. README.md beside this file shows how to write one.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

// Plugin describes an admission plugin: a line of the table.
type Plugin struct {
	// Name is the name kube-apiserver knows the plugin by.
	Name string
	// Summary says in one line what the plugin does.
	Summary string
	// Rules say which reviews the plugin gets. It never sees others.
	Rules []Rule
	// Mutates and Validates say which of Handler's functions New gives.
	Mutates, Validates bool
	// SideEffects is NoneOnDryRun for a plugin that does or remembers something
	// beside answering, which it must then not do for a review whose DryRun is
	// true. Empty is None. There is nothing else: kube-apiserver accepts no
	// webhook that does more (k8s.io/api/admissionregistration/v1 SideEffectClass).
	SideEffects admissionregistrationv1.SideEffectClass
	// RequiresConfig says that the plugin does not run without a configuration.
	RequiresConfig bool
	// Needs say which objects of the cluster the plugin reads and writes. The
	// plugin is not called before what it watches is known. The RBAC rules of the
	// process follow from them.
	Needs []cluster.Need
	// NeedsOf returns what the plugin needs beside Needs with this configuration file,
	// which is nil if there is none and may be wrong; nil for nothing.
	NeedsOf func(config []byte) []cluster.Need
	// OnByDefault says whether kube-apiserver v1.36 runs the plugin unless told
	// otherwise.
	OnByDefault bool
	// LastRelease is the last Kubernetes minor release that had the plugin,
	// empty if v1.36 has it.
	LastRelease string
	// OutOfTree says that the plugin is none of kube-apiserver's. app.WithPlugin
	// sets it.
	OutOfTree bool
	// New makes a handler. The error says what is wrong with the configuration.
	New func(setup Setup) (Handler, error)
}

// AllNeeds returns what the plugin needs of the cluster with this configuration
// file.
func (p *Plugin) AllNeeds(config []byte) []cluster.Need {
	if p.NeedsOf == nil {
		return p.Needs
	}
	return append(slices.Clip(p.Needs), p.NeedsOf(config)...)
}

// Setup contains what a plugin needs to create its handler.
type Setup struct {
	// Config is the plugin's own configuration file, nil if there is none.
	Config []byte
	// Manifests are the files of the folder that the configuration names as
	// staticManifestsDir, sorted by name; see k8s.io/apiserver
	// pkg/admission/plugin/manifest.
	Manifests []File
	// Params are objects that policies of Manifests may name as parameters.
	Params []ParamKind
	// Kubeconfig is the kubeconfig file that the configuration names as kubeConfigFile,
	// with the contents of the files that it names in place of their names; nil if it
	// names none.
	Kubeconfig []byte
	// Metrics is where the plugin makes series of its own. It is never nil.
	Metrics *metrics.Set
	// Cluster gives access to what the plugin's Needs name; nil if that is nothing.
	Cluster *cluster.View
}

// File is a file that was read for a plugin.
type File struct {
	Name    string // as errors show it
	Content []byte

	// FromAPI says that its documents are as the API has them: policies may have
	// parameters, and a binding may be of a policy that is not there. Documents of a
	// folder that the configuration names may not.
	FromAPI bool
}

// ParamKind has the objects of a kind that policies may use as parameters.
type ParamKind struct {
	APIVersion, Kind string
	Namespaced       bool // the objects are in namespaces
	Objects          []ParamObject
}

// ParamObject is an object that policies may use as a parameter.
type ParamObject struct {
	Namespace, Name string // the namespace is empty if they are in none
	Labels          map[string]string
	JSON            []byte
}

// FileError is an error in a file that was read for a plugin.
type FileError struct {
	File string // its Name
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("error loading %s: %v", e.File, e.Err) }

func (e *FileError) Unwrap() error { return e.Err }

// Handler is an initialized plugin. Its functions are called by many goroutines at
// the same time. They must not keep the review or anything read from it, and must
// not use ctx after they return; ctx ends when the answer would come too late.
type Handler struct {
	// Admit may change review.Object, and may deny. It is called before any
	// Validate. It must come to the same result when it is called again on what
	// it made. Nil if the plugin does not mutate.
	Admit func(ctx context.Context, review *codec.Review) Result
	// Validate may deny. Nil if the plugin does not validate.
	Validate func(ctx context.Context, review *codec.Review) Result
	// Rules returns those reviews of the plugin's Rules that the handler has something
	// to say to now; others need not be sent to it. Nil for all of them.
	Rules func() []Rule
	// Run does what there is to do beside reviews, until ctx ends. It is called once
	// where the handler serves for longer, which it does not do for "review". It calls
	// rulesChanged when it knows for the first time what Rules returns, and when that
	// changes. Nil for nothing.
	Run func(ctx context.Context, rulesChanged func())
}

// Result is the result of a plugin's call. The zero Result allows the request.
type Result struct {
	// Denial is the status the user gets; nil if the plugin does not deny. It has a
	// code from 400 to 599; another one is a failure of the plugin.
	Denial *codec.Status
	// Err says that the plugin could not come to a decision. It is no denial:
	// the plugin's failure policy decides.
	Err error
}

// Allowed allows the request.
func Allowed() Result { return Result{} }

// Denied denies the request with the metav1.Status of err. An error without a
// status becomes what kube-apiserver makes of it when an in-tree plugin
// returns one: code 500 with err's text and no reason (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters/status.go).
func Denied(err error) Result {
	var withStatus apierrors.APIStatus
	if !errors.As(err, &withStatus) {
		return Result{Denial: &codec.Status{Code: http.StatusInternalServerError, Message: err.Error()}}
	}
	return Result{Denial: statusOf(withStatus.Status())}
}

// Errored says that the plugin failed, even if err is nil.
func Errored(err error) Result {
	if err == nil {
		err = errNothing
	}
	return Result{Err: err}
}

func statusOf(s metav1.Status) *codec.Status {
	status := &codec.Status{Code: s.Code, Message: s.Message, Reason: string(s.Reason)}
	if d := s.Details; d != nil {
		status.Details = codec.Details{
			Name: d.Name, Group: d.Group, Kind: d.Kind, UID: string(d.UID), RetryAfterSeconds: d.RetryAfterSeconds,
		}
		for _, cause := range d.Causes {
			status.Details.Causes = append(status.Details.Causes,
				codec.Cause{Type: string(cause.Type), Message: cause.Message, Field: cause.Field})
		}
	}
	return status
}

// Forbidden returns the error of in-tree plugins for a denial: code 403, reason
// Forbidden, and a message that names the resource and the object (k8s.io/apiserver
// pkg/admission/errors.go NewForbidden).
func Forbidden(review *codec.Review, err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	resource := review.Resource()
	return apierrors.NewForbidden(
		schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, objectName(review), err)
}

// objectName is the name NewForbidden shows (extractResourceName there): that
// of the request, or the one that the object has or is going to get.
func objectName(review *codec.Review) string {
	if name := review.Name(); name != "" {
		return name
	}
	for _, field := range [...]string{"name", "generateName"} {
		if name := review.Object.Get("metadata", field).String(); name != "" {
			return name
		}
	}
	return "Unknown"
}
