// Package admission defines admission plugins: their interface, the rules that
// select their reviews, and the chain that runs plugins in order on a review.
//
// The built-in plugins and their table are in package handlers. README.md in this
// folder shows how to write a plugin.
package admission

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

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin describes an admission plugin.
type Plugin struct {
	// Name is the name of the plugin, as in --enable-admission-plugins. A built-in
	// plugin has the name that it has in kube-apiserver.
	Name string
	// Summary says in one line what the plugin does.
	Summary string
	// Rules select the reviews that the plugin gets. It never gets others.
	Rules []Rule
	// Mutates and Validates are true if the Handler of New has the functions Admit
	// and Validate.
	Mutates, Validates bool
	// SideEffects is NoneOnDryRun for a plugin that writes or remembers something
	// because of a review. The plugin must not do so if the review's DryRun is true.
	// The default is None. kube-apiserver accepts no webhooks with other side effects
	// (k8s.io/api/admissionregistration/v1 SideEffectClass).
	SideEffects admissionregistrationv1.SideEffectClass
	// RequiresConfig is true if the plugin needs a configuration file.
	RequiresConfig bool
	// Calls is true if the plugin calls addresses that its configuration file names.
	// fastadmit review and test, whose input may be a stranger's, do not run it then,
	// unless the user allows it.
	Calls bool
	// Needs are the kinds that the plugin reads and writes in the cluster. The plugin
	// is not called before the objects that it watches are cached. The RBAC rules of
	// the process are derived from Needs.
	Needs []cluster.Need
	// NeedsOf returns additional needs that depend on the configuration file. config is
	// nil if there is no file, and may be invalid. NeedsOf may be nil.
	NeedsOf func(config []byte) []cluster.Need
	// OnByDefault is true if kube-apiserver runs the plugin by default, in the release that is
	// emulated.
	OnByDefault bool
	// FirstRelease is the first Kubernetes minor release that had the plugin, empty if all
	// releases that can be emulated have it.
	FirstRelease string
	// OnSince is the first minor release whose kube-apiserver runs the plugin by default and has the
	// plugin's feature gate on by default, if that is a later one than FirstRelease.
	OnSince string
	// LastRelease is the last Kubernetes minor release that had the plugin,
	// empty if the newest one has it.
	LastRelease string
	// OutOfTree is true if the plugin is not one of kube-apiserver. app.WithPlugin sets
	// it.
	OutOfTree bool
	// New creates a handler. It returns an error if the configuration is invalid.
	New func(setup Setup) (Handler, error)
}

// IsIn reports whether a release of Kubernetes has the plugin.
func (p *Plugin) IsIn(v Version) bool {
	return (p.FirstRelease == "" || v.Has(p.FirstRelease)) && (p.LastRelease == "" || !v.Has(p.LastRelease) || v.String() == p.LastRelease)
}

// AllNeeds returns Needs and the result of NeedsOf for a configuration file, which may be
// nil.
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
	// Manifests are the files in the folder staticManifestsDir of the configuration,
	// sorted by name; see k8s.io/apiserver pkg/admission/plugin/manifest.
	Manifests []File
	// Params are objects that policies in Manifests may use as parameters.
	Params []ParamKind
	// Kubeconfig is the kubeconfig file kubeConfigFile of the configuration, nil if
	// there is none. The names of files in it are replaced by their contents.
	Kubeconfig []byte
	// InterpretCEL makes cel-go's interpreter evaluate all CEL expressions, for debugging.
	InterpretCEL bool
	// Version is the release of Kubernetes whose behavior the plugin has.
	Version Version
	// Metrics is the set for the plugin's own metrics. It is never nil.
	Metrics *metrics.Set
	// Cluster gives access to the kinds in the plugin's Needs. It is nil if there are
	// none.
	Cluster *cluster.View
}

// File is a file that was read for a plugin.
type File struct {
	Name    string // as shown in errors
	Content []byte

	// FromAPI is true if the documents may have everything that the API allows:
	// policies may have parameters, and a binding may name a policy that does not
	// exist. Both are errors in the files of a folder in the configuration.
	FromAPI bool
	// Functions is true for the translation of a policy of Kyverno whose expressions call functions of Kyverno. Reads is
	// true if they also read other objects of the cluster, which are among Setup.Params.
	Functions, Reads bool
}

// ParamKind is a kind whose objects policies may use as parameters or read.
type ParamKind struct {
	APIVersion, Kind string
	Resource         string // the name of the kind for expressions that read objects, such as pods; may be empty
	Namespaced       bool   // the objects are in namespaces
	Objects          []ParamObject
}

// ParamObject is an object that policies may use as a parameter.
type ParamObject struct {
	Namespace, Name string // the namespace is empty for cluster-scoped objects
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

// Handler is an initialized plugin. Several goroutines call its functions at the same
// time. The functions must not keep the review or anything read from it, and must not
// use ctx after they return. ctx ends when it is too late for an answer.
type Handler struct {
	// Admit may change review.Object, and may deny. It is called before Validate. If
	// it is called again with the object that it changed, it must not change it
	// further. Nil if the plugin does not mutate.
	Admit func(ctx context.Context, review *codec.Review) Result
	// Validate may deny. Nil if the plugin does not validate.
	Validate func(ctx context.Context, review *codec.Review) Result
	// Explain does what Admit or Validate does, according to the Phase of x, and describes in x what
	// decided: it adds Policies, Webhooks or Standards, and to Changes which policy or webhook made them.
	// Nil if the messages of the plugin say enough.
	Explain func(ctx context.Context, review *codec.Review, x *Explanation) Result
	// Exceptions lift what plugins say against a review. Nil if the handler knows none.
	Exceptions Exceptions
	// Rules returns the rules of the reviews that the handler needs at the moment, a
	// part of the plugin's Rules. Nil means all of the plugin's Rules.
	Rules func() []Rule
	// Run does background work until ctx ends. A server calls it once for each handler;
	// "fastadmit review" does not call it. Run calls rulesChanged as soon as the result
	// of Rules is known, and each time it changes. Nil if there is no background work.
	Run func(ctx context.Context, rulesChanged func())
}

// Result is the result of a plugin's call. The zero Result allows the request.
type Result struct {
	// Denial is the status that the user gets, nil if the plugin does not deny. Its
	// code must be from 400 to 599, otherwise the plugin fails.
	Denial *codec.Status
	// Err is the reason why the plugin could not decide, nil if it did. The plugin's
	// failure policy then decides.
	Err error
	// Unchecked, if it is not empty, says why nothing that the plugin is configured with applies to
	// the request, which is allowed. The server ignores it; fastadmit review reports objects that
	// no plugin checked.
	Unchecked string
}

// Allowed allows the request.
func Allowed() Result { return Result{} }

// NotSelected is why a plugin that evaluates policies or calls webhooks did not check a request.
const NotSelected = "none of its policies or webhooks selects it"

// Unchecked allows the request because nothing that the plugin is configured with applies to it: for
// PodSecurity, the namespace's level is privileged. why is a constant text that completes the sentence
// "the plugin did not check it: ...".
func Unchecked(why string) Result { return Result{Unchecked: why} }

// Denied denies the request with the metav1.Status of err. If err has no status, the
// status has code 500, the text of err and no reason, as kube-apiserver does with errors
// of in-tree plugins (k8s.io/apiserver pkg/endpoints/handlers/responsewriters/status.go).
func Denied(err error) Result {
	var withStatus apierrors.APIStatus
	if !errors.As(err, &withStatus) {
		return Result{Denial: &codec.Status{Code: http.StatusInternalServerError, Message: err.Error()}}
	}
	return Result{Denial: statusOf(withStatus.Status())}
}

// Errored reports that the plugin failed; its failure policy decides. This is so even
// if err is nil.
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

// objectName returns the name that NewForbidden shows (extractResourceName there): the
// name of the request, or metadata.name or metadata.generateName of the object.
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
