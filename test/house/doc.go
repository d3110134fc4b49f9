// Package house holds the shape of the code: who imports whom, what stands where,
// and what the pure packages never do. It has tests alone. ARCHITECTURE.md says why.
package house
