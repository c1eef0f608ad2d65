//go:build race || poison

package admissiontest

// allocates says whether the build allocates where others do not: the race
// detector does, and the tag poison copies each body.
const allocates = true
