//go:build race || poison

package admissiontest

// allocates reports whether this build allocates more than a normal one: the
// race detector does, and the tag poison copies each body.
const allocates = true
